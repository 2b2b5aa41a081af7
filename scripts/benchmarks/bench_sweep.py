"""CPU time of a whole sweep under several source trees of kvbench, in turns: what a piece of code is worth to a user.

    python -m scripts.benchmarks.bench_sweep --tree with=. --tree without=/tmp/without

A sweep is `kvbench.run`: the model is loaded, a prompt of the needle benchmark prefilled once, and every setting
compressed, decoded and recorded. Each tree has a process of its own, and the processes take turns, so that what else
the machine does meets all of them. CPU seconds are those of all threads, user and system; an operator has those of the
thread that calls it. The first round warms up. A share is the part of the first tree's time that another tree takes
more, in the same round; of an operator, its own part of that.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from scripts.frame import script_parser, tell

RATIOS = [0.2, 0.4]
WHOLE = "whole sweep"
MIXED = "full,streaming_llm,h2o,snapkv,pyramidkv,adakv,kivi,fp8_token,ggml_q4_0,spindle"


class Worker:
    """A process that imports kvbench from `tree` and makes a sweep each time that it is asked."""

    def __init__(self, tree: Path, options: argparse.Namespace):
        arguments = [f"--{name}={getattr(options, name)}" for name in ("methods", "length", "samples", "threads")]
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--worker", *arguments],
            env=os.environ | {"PYTHONPATH": str(tree.resolve())},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def seconds(self) -> dict[str, float]:
        """Of a sweep: `WHOLE`, and each operator by its name."""
        assert self.process.stdin and self.process.stdout, "both are pipes"
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return dict(json.loads(self.process.stdout.readline()))


def work(options: argparse.Namespace) -> None:
    """CPU seconds of one sweep for each line of the standard input."""
    import torch

    import kvbench
    from kvbench.ops import operator

    torch.set_num_threads(options.threads)
    spent: Counter[str] = Counter()
    implementation = operator.implementation

    def timed(*implementations: Any) -> Callable[..., Any]:
        """`implementations` are a reference and a device, behind the operator's name in older trees."""
        function = implementation(*implementations)

        def call(*args: object) -> object:
            started = time.thread_time()
            out = function(*args)
            spent[implementations[-2].__name__] += time.thread_time() - started
            return out

        return call

    operator.implementation = timed
    depths = [round(100 * (place + 1) / (options.samples + 1)) for place in range(options.samples)]
    benchmark = {"niah": {"lengths": [options.length], "depths": depths}}
    for _ in sys.stdin:
        with tempfile.TemporaryDirectory() as folder:
            started = time.process_time()
            spent.clear()
            kvbench.run(method=options.methods.split(","), ratio=RATIOS, benchmark=benchmark, output_dir=folder)
            print(json.dumps(spent | {WHOLE: time.process_time() - started}), flush=True)


def main() -> None:
    parser = script_parser(__doc__)
    parser.add_argument("--tree", action="append", metavar="NAME=FOLDER", help="a source tree of kvbench")
    parser.add_argument("--methods", default=MIXED, help="default: %(default)s")
    for name, value in {"length": 1024, "samples": 1, "threads": 1, "repeats": 4}.items():
        parser.add_argument(f"--{name}", type=int, default=value, help="default: %(default)s")
    parser.add_argument("--json", type=Path, help="also write the result to this file")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        return work(options)
    trees = dict(text.split("=", 1) for text in options.tree or ["here=."])
    workers = {name: Worker(Path(tree), options) for name, tree in trees.items()}
    rounds = [{name: worker.seconds() for name, worker in workers.items()} for _ in range(options.repeats + 1)][1:]
    base, *others = workers
    for worker in workers.values():
        worker.process.communicate()

    def shares(other: str) -> dict[str, list[float]]:
        """For the whole sweep and each operator: in each round, what `other` takes more of the base's whole time."""
        pairs = [(each[base], each[other]) for each in rounds]
        names = sorted({name for _, seconds in pairs for name in seconds})
        return {name: [(b.get(name, 0.0) - a.get(name, 0.0)) / a[WHOLE] for a, b in pairs] for name in names}

    shares_of = {other: shares(other) for other in others}
    tell(
        {
            "what": f"CPU seconds of a sweep, and the share by which other trees take longer than {base!r}",
            "methods": options.methods.split(","),
            "ratios": RATIOS,
            "prompt_tokens": options.length,
            "samples": options.samples,
            "threads": options.threads,
            "cpu_seconds": {name: [round(each[name][WHOLE], 2) for each in rounds] for name in workers},
            "shares": {other: [round(share, 3) for share in parts[WHOLE]] for other, parts in shares_of.items()},
            "share_median": {
                other: {name: round(median(values), 4) for name, values in parts.items()}
                for other, parts in shares_of.items()
            },
        },
        options.json,
    )


if __name__ == "__main__":
    main()
