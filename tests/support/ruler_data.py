"""What the tests of RULER share: its data, inputs that need no download, a token count without special tokens."""

import json
from pathlib import Path

from kvbench.benchmarks import Ruler
from kvbench.benchmarks.ruler.inputs import Inputs
from tests.support.paths import DATA

DATA = DATA / "ruler"
SQUAD, HOTPOTQA = str(DATA / "squad_normans.json"), str(DATA / "hotpotqa.json")


def inputs(**more) -> Inputs:
    return Inputs(**{"squad": SQUAD, "hotpotqa": HOTPOTQA} | more)


def ruler(**more) -> Ruler:
    return Ruler(**{"lengths": [1024], "num_samples": 2, "squad": SQUAD, "hotpotqa": HOTPOTQA} | more)


def counter(tokenizer):
    return lambda text: len(tokenizer(text, add_special_tokens=False)["input_ids"])


def rows(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]
