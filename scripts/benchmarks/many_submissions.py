"""How long a leaderboard of many packs takes: `python -m scripts.benchmarks.many_submissions [--count 200]`.

Each submission is a pack with times of its own, so that no two are the same; all are checked as `kvbench verify` does.
Seconds include reading, verifying, intervals and writing, and importing torch.
"""

import resource
import shutil
import tempfile
import time
from pathlib import Path

from kvbench.utils.environment import git_commit, hardware
from kvbench.utils.files import write_atomically
from scripts.frame import command, script_parser

DEMO = Path(__file__).parents[2] / "results" / "community" / "smollm2-demo" / "niah-visible"


def main() -> None:
    parser = script_parser(__doc__)
    parser.add_argument("--count", type=int, default=200, help="submissions; default: 200")
    parser.add_argument("--out", type=Path, default=Path("results/benchmarks"), help="folder of submissions.md")
    options = parser.parse_args()
    # behind the parser: these bring torch
    from kvbench.records.record_files import read_file
    from kvbench.records.store import PACK
    from kvbench.runner.leaderboard.command import write

    with tempfile.TemporaryDirectory() as name:
        top = Path(name)
        records = read_file(DEMO / PACK).records
        for number in range(options.count):
            hand_in(records, top / f"{number:05}", number)
        started, busy = time.perf_counter(), time.process_time()
        page = write([top], top)[0].read_text(encoding="utf-8")
        seconds, busy = time.perf_counter() - started, time.process_time() - busy
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    assert "## Not ranked" not in page, "a submission of an honest pack is ranked"
    lines = [
        "# A leaderboard of many packs, every one verified",
        "",
        "| packs | records of each | seconds of one core | seconds | GiB at most |",
        "| --: | --: | --: | --: | --: |",
        f"| {options.count:,} | {len(records)} | {busy:.0f} | {seconds:.0f} | {peak:.1f} |",
        "",
        f"`{command()}`, on {hardware()['cpu']}, beside other work; kvbench {git_commit()}.",
        "",
    ]
    write_atomically(options.out / "submissions.md", "\n".join(lines))


def hand_in(records: list[dict], folder: Path, number: int) -> None:
    """A copy of the demo's pack with other times."""
    from kvbench.records.parquet_records import write_records
    from kvbench.records.store import PACK

    shutil.copytree(DEMO, folder)
    later = 1 + number * 1e-9
    write_records(
        folder / PACK, [record | {"prefill_seconds": record["prefill_seconds"] * later} for record in records]
    )


if __name__ == "__main__":
    main()
