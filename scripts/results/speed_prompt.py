"""The prompt that `speed_qwen.py` gives to every side: that of `benchmark=speed`."""

from pathlib import Path

from transformers import AutoTokenizer

from kvbench.benchmarks.speed import Speed
from kvbench.models.embedded import embedded_folder
from scripts.results.served_servers import QWEN, Model

MODEL = QWEN


def folder(model: Model) -> Path:
    """The weights of a package, as transformers reads them."""
    return Path(embedded_folder(model.package))


def prompt(length: int, new_tokens: int) -> list[int]:
    """`length` token ids."""
    speed = Speed(lengths=[length], batches=[1], new_tokens=[new_tokens])
    return speed.ids(AutoTokenizer.from_pretrained(folder(MODEL)), length)
