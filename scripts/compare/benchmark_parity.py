"""Does kvbench score and write prompts as the official code of a benchmark does, on its own published answers and rows?

    python -m scripts.compare.benchmark_parity babilong=PATH …

Each PATH is a checkout of the benchmark's repository, made beforehand: nothing is fetched, and nothing of it is copied.
Prints a line for everything compared; exits with 1 where anything differs. scripts/README.md has the result.
"""

import sys
from pathlib import Path

from scripts.compare.parity import babilong, infinitebench, longbench_v2, nolima, scbench
from scripts.compare.parity.checkout import commit
from scripts.frame import script_parser

# Each gives what it compared, how many, and how many of them differ.
BENCHMARKS = {
    "babilong": babilong.run,
    "infinitebench": infinitebench.run,
    "longbench_v2": longbench_v2.run,
    "nolima": nolima.run,
    "scbench": scbench.run,
}


def main() -> None:
    parser = script_parser(__doc__)
    parser.add_argument("checkouts", nargs="+", metavar="BENCHMARK=PATH", help=", ".join(BENCHMARKS))
    failed = False
    for argument in parser.parse_args().checkouts:
        name, _, path = argument.partition("=")
        if name not in BENCHMARKS or not path:
            raise SystemExit(f"{argument!r} is not BENCHMARK=PATH with a benchmark of {', '.join(BENCHMARKS)}")
        print(f"{name} at {commit(Path(path))}")
        for what, count, different in BENCHMARKS[name](Path(path)):
            print(f"    {what}: {count:,} compared, {different} different", flush=True)
            failed |= different > 0 or count == 0
    sys.exit(failed)


if __name__ == "__main__":
    main()
