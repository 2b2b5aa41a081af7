"""Does kvbench score and write prompts as the official code of a benchmark does, on its own published answers and rows?

    python scripts/benchmark_parity.py babilong=PATH …

Each PATH is a checkout of the benchmark's repository, made beforehand: nothing is fetched, and nothing of it is copied.
Prints a line for everything compared; exits with 1 where anything differs. scripts/README.md has the result.
"""

import argparse
import csv
import sys
from collections.abc import Iterator
from pathlib import Path

from parity.checkout import commit, load

from kvbench.benchmarks.babilong import prompts as babilong_prompts
from kvbench.metrics import babilong as babilong_metric

Comparison = tuple[str, int, int]  # what, how many, how many of them differ


def babilong(root: Path) -> Iterator[Comparison]:
    official = load(root, "babilong/metrics.py")
    csv.field_size_limit(10**9)
    files = sorted(root.glob("babilong_evals/*/*/*.csv"))
    count = different = 0
    for file in files:
        task = file.name.split("_")[0]
        with file.open(encoding="utf-8", newline="") as lines:
            for row in csv.DictReader(lines):
                asked = row["target"], row["output"], row["question"]
                wanted = official.compare_answers(*asked, official.TASK_LABELS[task])
                different += wanted != babilong_metric.score(task, row["output"], row["target"], row["question"])
                count += 1
    yield f"verdicts on the answers of {len(files)} files", count, different
    official = load(root, "babilong/prompts.py")
    ours = babilong_prompts.load(babilong_prompts.SHA256, str(root / "babilong" / "prompts.py"))
    row = ("\n A {context} with {question}, 'quotes' and ’these’.\n", "Where is {Mary}? ")
    different = 0
    for task, parts in official.DEFAULT_PROMPTS.items():
        wanted = official.get_formatted_input(*row, parts["examples"], parts["instruction"], parts["post_prompt"])
        different += wanted != ours[task].fill(*row)[0]
    yield "prompts", len(ours), different


BENCHMARKS = {"babilong": babilong}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
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
