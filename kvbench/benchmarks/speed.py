"""The grid of a speed run: prompt lengths × batches × generated tokens. `kvbench.evaluation.speed` measures it."""

from collections.abc import Mapping
from itertools import product
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from kvbench.benchmarks import haystack
from kvbench.benchmarks.base import Benchmark, Sample
from kvbench.benchmarks.niah.placement import take
from kvbench.benchmarks.niah.published_texts import folder_of
from kvbench.benchmarks.niah.ranges import integers, whole
from kvbench.benchmarks.planned import PromptSize
from kvbench.utils.checked import NonNegative, Positive, PositiveNumber, checked
from kvbench.utils.tokenizer import Tokenizer

LARGEST = "largest"


def _as_list(value: Any) -> Any:
    """A single value as a list, and a list without repetitions, as `integers` makes lists of numbers."""
    if isinstance(value, list):
        return [each for place, each in enumerate(value) if each not in value[:place]]
    return [value] if isinstance(value, int | str) else value


@checked(prefix="benchmark.")
class Speed(Benchmark):
    """One prompt of each length, read by a batch of sequences that all decode the same number of tokens.

    A batch is a number of sequences, or "largest": as many as fit into `memory_gib` GiB (None: the device's memory)
    under each setting. Each setting is measured `repeats` times, after `warmup` rounds that are not counted.
    """

    lengths: Annotated[list[Annotated[int, Field(ge=16)]], BeforeValidator(integers)]
    batches: Annotated[list[Positive | Literal["largest"]], Field(min_length=1), BeforeValidator(_as_list)]
    new_tokens: Annotated[list[Annotated[int, Field(ge=4)]], BeforeValidator(integers)]
    repeats: Positive = 5
    warmup: NonNegative = 1
    largest: bool = True
    memory_gib: PositiveNumber | None = None
    haystack_dir: str | None = None
    name: str = "speed"

    metrics = ()

    @classmethod
    def prompt_sizes(cls, config: Mapping[str, Any]) -> dict[str, list[PromptSize]]:
        repeats = config["repeats"] + config["warmup"]
        grid = product(whole(config["lengths"]), whole(config["new_tokens"]), _as_list(config["batches"]))
        return {
            "": [
                PromptSize(length, new, False, batch if isinstance(batch, int) else None, repeats)
                for length, new, batch in grid
            ]
        }

    @property
    def longest(self) -> int:
        return max(self.lengths) + max(self.new_tokens)

    def samples(self, tokenizer: Tokenizer) -> list[Sample]:
        """One for each cell of the grid. `meta` names machine and torch version: no run folder mixes two of them."""
        import torch  # takes seconds, and a grid is checked without it

        prompts = {length: tokenizer.decode(self.ids(tokenizer, length)) for length in self.lengths}
        versions = machine() | {"torch": torch.__version__}
        return [
            Sample(
                id=f"{length}-{batch}-{new}",
                prompt=prompts[length],
                answers=(),
                max_new_tokens=new,
                chat=False,
                meta={"task": self.name, "length": length, "batch": batch, "new_tokens": new, **versions},
            )
            for length, new, batch in product(self.lengths, self.new_tokens, self.batches)
        ]

    def ids(self, tokenizer: Tokenizer, length: int) -> list[int]:
        """`length` token ids: the special tokens that the tokenizer begins a text with, then plain text."""
        folder = folder_of(self.haystack_dir)
        source = haystack.generated(0) if folder is None else haystack.from_folder(folder, 0)
        special = tokenizer("")["input_ids"]
        return [*special, *take(source, tokenizer, length - len(special))]

    def score(self, sample: Sample, prediction: str) -> dict[str, float]:
        return {}


def machine() -> dict[str, Any]:
    """The hardware and threads that times depend on besides the model."""
    from kvbench.utils.environment import hardware  # imports torch

    parts = hardware()
    return {"machine": " + ".join([*parts["gpus"], parts["cpu"]]), "threads": parts["threads"]}


PLACE = ["length", "new_tokens", "batch"]
# Times of different machines, threads, versions of torch or kernels, which a run's manifest names, are not compared.
MEASURED_ON = ["machine", "threads", "torch", "kernels"]
# Where times differ by nothing but the setting.
ALIKE = [*PLACE, *MEASURED_ON, "decode_engine"]
