"""Mutate places of kvbench drawn at random, and run the tests that cover each."""

import json
import os
import random
import resource
import sys
from collections import Counter
from dataclasses import asdict
from pathlib import Path

from scripts.frame import script_parser, write
from scripts.maintenance.mutation.covered import Covered, chosen
from scripts.maintenance.mutation.places import Place, places, with_fault

PRELOADED = (
    "torch",
    "transformers",
    "pandas",
    "hydra",
    "matplotlib.pyplot",
    "datasets",
    "pytest",
    "rich",
    "hypothesis",
)


def main() -> None:
    parser = script_parser(__doc__)
    parser.add_argument("tree", type=Path, help="a checkout of its own: its files are changed while the tests run")
    parser.add_argument("--trace", type=Path, required=True, help="the folder that `trace` wrote")
    parser.add_argument("--traced", type=Path, help="the checkout in which it wrote it; default: tree")
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limit", type=float, default=40, help="CPU seconds of tests a place; default: %(default)s")
    parser.add_argument("--only", type=Path, help="a file with the node ids of the tests that may run, one a line")
    parser.add_argument("--shard", default="0/1", help="I/N: every N-th place, from I")
    parser.add_argument("--out", type=Path, required=True, help="continued where it exists")
    args = parser.parse_args()
    tree = args.tree.resolve()
    covered = Covered(args.trace, (args.traced or tree).resolve())
    allowed = set(args.only.read_text().splitlines()) if args.only else None
    results = json.loads(args.out.read_text()) if args.out.exists() else []
    known = {(row["path"], row["start"], row["end"], row["text"]) for row in results}
    shard, shards = map(int, args.shard.split("/"))
    for name in PRELOADED:
        __import__(name)
    for path, place in drawn(tree, args.count, args.seed)[shard::shards]:
        if (path, place.start, place.end, place.text) in known:
            continue
        tests = [test for test in covered.tests(path, place) if allowed is None or test in allowed]
        some = chosen(tests, covered.seconds, args.limit)
        outcome, test = outcome_of(tree, path, place, some, args.limit) if some else ("not covered", "")
        results.append({"path": path, **asdict(place), "tests": len(some), "outcome": outcome, "found_by": test})
        write(results, args.out)
        print(f"{len(results)} {dict(Counter(row['outcome'] for row in results))}", file=sys.stderr, flush=True)


def drawn(tree: Path, count: int, seed: int) -> list[tuple[str, Place]]:
    """Places at random, each of all places of the package as probable as another."""
    files = sorted(path.relative_to(tree).as_posix() for path in (tree / "kvbench").rglob("*.py"))
    every = [(name, place) for name in files for place in places((tree / name).read_text(encoding="utf-8"))]
    return random.Random(seed).sample(every, count)


def outcome_of(tree: Path, path: str, place: Place, tests: list[str], limit: float) -> tuple[str, str]:
    """`found`, `endless` or `missed`, and the test that failed first."""
    file = tree / path
    source = file.read_text(encoding="utf-8")
    reader, writer = os.pipe()
    file.write_text(with_fault(source, place), encoding="utf-8")
    try:
        if not (child := os.fork()):
            os.close(reader)
            run_tests(tree, tests, 3 * int(limit) + 60, writer)
        os.close(writer)
        with os.fdopen(reader) as lines:
            failed = lines.read()
        _, status = os.waitpid(child, 0)
    finally:
        file.write_text(source, encoding="utf-8")
    if os.WIFSIGNALED(status):
        return "endless", ""
    return ("missed", "") if os.WEXITSTATUS(status) == 0 else ("found", failed)


def run_tests(tree: Path, tests: list[str], seconds: int, failed: int) -> None:
    """In a process of its own: the tests until one fails. Ends the process with pytest's exit code."""
    import pytest

    class First:
        def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
            if report.failed:
                os.write(failed, report.nodeid.encode())

    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.dup2(1, 2)
    os.chdir(tree)
    sys.path[0] = str(tree)
    os.environ["PYTHONPATH"] = str(tree)
    for name in [name for name in sys.modules if name.split(".")[0] in {"scripts", "kvbench"}]:
        del sys.modules[name]
    code = 3
    try:
        code = pytest.main(["-x", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", *tests], plugins=[First()])
    finally:
        os._exit(int(code))


main()
