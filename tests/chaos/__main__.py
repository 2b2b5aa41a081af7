"""The loop: faults drawn by a seed until the time is over, then the counts."""

import argparse
import random
import shutil
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.chaos.commands import Violation
from tests.chaos.faults import FAULTS, Ground


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__import__("tests.chaos").chaos.__doc__)
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=sorted(FAULTS), help="one kind of fault")
    options = parser.parse_args()
    names = [options.only] if options.only else list(FAULTS)
    tried, failed = Counter(), []
    with tempfile.TemporaryDirectory(prefix="chaos-") as top:
        ground = Ground.prepared(Path(top))
        end = time.monotonic() + 60 * options.minutes
        number = 0
        while time.monotonic() < end:
            name = names[number % len(names)]
            seed = f"{options.seed} {number}"
            place = Path(top) / "trial"
            place.mkdir()
            try:
                what = FAULTS[name](ground, place, random.Random(seed))
                print(f"{number:>4} {name:<14} {what}", flush=True)
            except Violation as violation:
                failed.append((name, seed, str(violation)))
                print(f"{number:>4} {name:<14} FAILED {violation}", flush=True)
            tried[name] += 1
            number += 1
            shutil.rmtree(place)
    print(f"\n{sum(tried.values())} faults: " + ", ".join(f"{count} {name}" for name, count in tried.items()))
    print(f"{len(failed)} violations")
    for name, seed, what in failed:
        print(f"  {name}, seed {seed!r}: {what.splitlines()[0]}")
    return int(bool(failed))


if __name__ == "__main__":
    raise SystemExit(main())
