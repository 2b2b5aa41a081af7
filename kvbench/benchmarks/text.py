"""The user's own texts, scored token by token after compressed caches."""

from collections.abc import Sequence
from pathlib import Path

from kvbench.benchmarks.base import Benchmark, Sample, text_unit
from kvbench.errors import UserError
from kvbench.utils.checked import Positive, checked
from kvbench.utils.console import warn
from kvbench.utils.files import visible
from kvbench.utils.regular_files import read_text
from kvbench.utils.strangers import check_reading
from kvbench.utils.text import count
from kvbench.utils.tokenizer import Tokenizer

LONGEST = 1024  # tokens that are scored after one context: their logits [tokens, vocab_size] are held at once


@checked(prefix="benchmark.")
class Text(Benchmark):
    """Perplexity and bits per byte of texts, in consecutive windows: a context, and the tokens after it.

    The context is prefilled and compressed. The tokens after it are read through the compressed cache, and each is
    scored by its probability given all before it. There is no score of an answer: a record's `distance` has `nll` (nats
    per token) and `bits_per_byte` beside the distances from FullKV, over the same tokens. Perplexity is exp(nll).

    No character is cut: a place between two tokens of one is moved before it. All windows of a text are one unit: an
    interval needs several texts.

    path     the file with a text, or a folder with a .txt file for each; UTF-8.
    length   tokens of a context.
    scored   tokens that are scored after it, at most 1,024.
    windows  the most windows that are read of a text, from its start.
    """

    path: str | None
    length: Positive = 1024
    scored: Positive = 256
    windows: Positive = 20
    name: str = "text"
    metrics = ()

    def __post_init__(self) -> None:
        if self.path is None:
            raise UserError("set benchmark.path=FILE to a text file, or to a folder of .txt files")
        if self.scored > LONGEST:
            raise UserError(f"benchmark.scored={self.scored}: at most {LONGEST:,} tokens are scored behind a context")
        if self.scored < 2:
            raise UserError("benchmark.scored=1: the first token after a context is not scored, so 2 are the fewest")
        self.files = self._files(Path(self.path))
        self.texts = [self._read(file) for file in self.files]

    @property
    def longest(self) -> int:
        return self.length + self.scored + 5  # for a beginning-of-text token, and a word and a character that are cut

    def samples(self, tokenizer: Tokenizer) -> list[Sample]:
        step, alone = self.length + self.scored, len(self.texts) == 1
        read = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in self.texts]
        if (longest := max(map(len, read))) < step:
            has = f"has {longest:,} tokens" if alone else f"has no text of more than {longest:,} tokens"
            raise UserError(
                f"{self.path} {has}, fewer than one window of benchmark.length={self.length} and "
                f"benchmark.scored={self.scored}"
            )
        if short := sum(len(ids) < step for ids in read):
            warn(f"{short} of {count(len(read), 'text')} in {self.path}: shorter than one window, and left out")
        samples = []
        for file, text, ids in zip(self.files, self.texts, read, strict=True):
            name, unit = "" if alone else f"{file.name} ", text_unit(text)
            for start in range(0, len(ids) - step + 1, step)[: self.windows]:
                cuts = [_whole(tokenizer, ids, start + at) for at in (0, self.length, step)]
                samples.append(self._sample(tokenizer, ids, cuts, start, name, unit))
        return samples

    def score(self, sample: Sample, prediction: str) -> dict[str, float]:
        return {}

    def _files(self, path: Path) -> list[Path]:
        check_reading(path)
        if not path.is_dir():
            return [path]
        if not (files := visible(path, "*.txt")):
            raise UserError(f"benchmark.path={self.path!r} is a folder without a .txt file")
        return files

    def _read(self, file: Path) -> str:
        try:
            return read_text(file, "utf-8-sig")  # a byte order mark is no part of the text
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"benchmark.path={str(file)!r} cannot be read as a UTF-8 text: {error}") from None

    def _sample(
        self, tokenizer: Tokenizer, ids: list[int], cuts: Sequence[int], start: int, name: str, unit: str
    ) -> Sample:
        first, middle, last = cuts
        continuation = tokenizer.decode(ids[middle:last])
        if len(tokenizer(continuation, add_special_tokens=False)["input_ids"]) < 2:  # read alone, tokens may join
            raise UserError(
                f"{self.path}: the text {continuation!r} behind token {start + self.length} is read as one token, and "
                f"the first is not scored: take more than benchmark.scored={self.scored}"
            )
        return Sample(
            id=f"{name}token-{start}",
            prompt=tokenizer.decode(ids[first:middle]),
            answers=(),
            max_new_tokens=self.scored,
            continuation=continuation,
            chat=False,
            unit=unit,
            meta={"start": start, "length": self.length},
        )


def _whole(tokenizer: Tokenizer, ids: Sequence[int], at: int) -> int:
    """The last place up to `at` where no character is cut: one has at most four bytes, each a token at worst."""
    places = range(at, max(at - 4, -1), -1)
    return next((place for place in places if not _cut(tokenizer.decode(ids[place : place + 4]))), at)


def _cut(text: str) -> bool:
    """Whether a text begins with what decoding makes of half a character's bytes."""
    return text.startswith("\ufffd")
