"""The prompt that `speed_qwen.py` gives to every side: that of `benchmark=speed`."""

from transformers import AutoTokenizer

from kvbench.benchmarks.speed import Speed
from kvbench.models.embedded import embedded_folder
from scripts.results.served_servers import QWEN

MODEL = QWEN


def prompt(length: int) -> list[int]:
    """`length` token ids."""
    speed = Speed(lengths=[length], batches=[1], new_tokens=[4])  # of which the prompt takes the length alone
    return speed.ids(AutoTokenizer.from_pretrained(embedded_folder(MODEL.package)), length)
