"""The grid of a speed run: prompt lengths × batches × generated tokens. `kvbench.speed` measures it."""

from dataclasses import dataclass
from itertools import product

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from kvbench.benchmarks import haystack
from kvbench.benchmarks.base import Benchmark, Sample
from kvbench.benchmarks.niah.placement import take
from kvbench.benchmarks.niah.ranges import numbers
from kvbench.errors import UserError
from kvbench.utils.environment import hardware
from kvbench.utils.validation import at_least, is_number

LARGEST = "largest"


@dataclass
class Speed(Benchmark):
    """One prompt of each length, read by a batch of sequences that all decode the same number of tokens.

    A batch is a number of sequences, or "largest": as many as `memory_gib` holds of each setting.
    """

    lengths: list[int]
    batches: list[int | str]
    new_tokens: list[int]
    repeats: int = 5
    warmup: int = 1
    largest: bool = True
    memory_gib: float | None = None
    haystack_dir: str | None = None
    name: str = "speed"
    metrics: tuple[str, ...] = ()

    def __post_init__(self):
        self.lengths = numbers("benchmark.lengths", self.lengths)
        self.new_tokens = numbers("benchmark.new_tokens", self.new_tokens)
        self.batches = [self.batches] if isinstance(self.batches, int | str) else list(self.batches)
        for length in self.lengths:
            at_least("a length in benchmark.lengths", length, 16)
        for count in self.new_tokens:
            at_least("a number in benchmark.new_tokens", count, 4)
        for batch in self.batches:
            if isinstance(batch, str) and batch != LARGEST:
                raise UserError(
                    f"batch {batch!r} in benchmark.batches is neither a number of sequences nor {LARGEST!r}"
                )
            if batch != LARGEST:
                at_least("a batch in benchmark.batches", batch, 1)
        at_least("benchmark.repeats", self.repeats, 1)
        at_least("benchmark.warmup", self.warmup, 0)
        if not self.batches:
            raise UserError("benchmark.batches is empty: [1] is one sequence at a time")
        if not isinstance(self.largest, bool):
            raise UserError(f"benchmark.largest={self.largest!r} must be true or false")
        if self.memory_gib is not None and (not is_number(self.memory_gib) or self.memory_gib <= 0):
            raise UserError(f"benchmark.memory_gib={self.memory_gib!r} must be a positive number of GiB")

    @property
    def longest(self) -> int:
        return max(self.lengths) + max(self.new_tokens)

    def samples(self, tokenizer: PreTrainedTokenizerBase) -> list[Sample]:
        """One for each place of the grid. Times of two machines or torch versions never share a folder."""
        prompts = {length: tokenizer.decode(self.ids(tokenizer, length)) for length in self.lengths}
        where = machine() | {"torch": torch.__version__}
        return [
            Sample(
                id=f"{length}-{batch}-{new}",
                prompt=prompts[length],
                answers=(),
                max_new_tokens=new,
                chat=False,
                meta={"task": self.name, "length": length, "batch": batch, "new_tokens": new, **where},
            )
            for length, new, batch in product(self.lengths, self.new_tokens, self.batches)
        ]

    def ids(self, tokenizer: PreTrainedTokenizerBase, length: int) -> Tensor:
        """Token ids [length] of plain text, after the special tokens that the tokenizer begins a text with."""
        source = haystack.generated(0) if self.haystack_dir is None else haystack.from_folder(self.haystack_dir, 0)
        first = tokenizer("")["input_ids"]
        return torch.tensor([*first, *take(source, tokenizer, length - len(first))])

    def score(self, sample: Sample, prediction: str) -> dict[str, float]:
        return {}


def machine() -> dict:
    """What the times depend on besides the model."""
    here = hardware()
    return {"machine": " + ".join([*here["gpus"], here["cpu"]]), "threads": here["threads"]}


PLACE = ["length", "new_tokens", "batch"]
