"""The user's own text, scored token by token after compressed caches."""

from kvbench.benchmarks.base import Benchmark, Sample
from kvbench.errors import UserError
from kvbench.utils.checked import Positive, checked
from kvbench.utils.regular_files import read_text
from kvbench.utils.tokenizer import Tokenizer

LONGEST = 1024  # tokens that are scored after one context: their logits [tokens, vocab_size] are held at once


@checked(prefix="benchmark.")
class Text(Benchmark):
    """Perplexity and bits per byte of a text, in consecutive windows: a context, and the tokens after it.

    The context is prefilled and compressed. The tokens after it are read through the compressed cache, and each is
    scored by its probability given all before it. There is no score of an answer: a record's `distance` has `nll` (nats
    per token) and `bits_per_byte` beside the distances from FullKV, over the same tokens. Perplexity is exp(nll).

    path     the file; UTF-8.
    length   tokens of a context.
    scored   tokens that are scored after it, at most 1,024.
    windows  the most windows that are read, from the start of the text.
    """

    path: str | None
    length: Positive = 1024
    scored: Positive = 256
    windows: Positive = 20
    name: str = "text"
    metrics = ()

    def __post_init__(self) -> None:
        if self.path is None:
            raise UserError("set benchmark.path=FILE to a text file")
        if self.scored > LONGEST:
            raise UserError(f"benchmark.scored={self.scored}: at most {LONGEST:,} tokens are scored behind a context")
        if self.scored < 2:
            raise UserError("benchmark.scored=1: the first token after a context is not scored, so 2 are the fewest")
        try:
            self.text = read_text(self.path)
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"benchmark.path={self.path!r} cannot be read as a UTF-8 text: {error}") from None

    @property
    def longest(self) -> int:
        return self.length + self.scored + 2  # for a beginning-of-text token, and for a word that is cut

    def samples(self, tokenizer: Tokenizer) -> list[Sample]:
        ids = tokenizer(self.text, add_special_tokens=False)["input_ids"]
        step = self.length + self.scored
        if len(ids) < step:
            raise UserError(
                f"{self.path} has {len(ids):,} tokens, fewer than one window of benchmark.length={self.length} and "
                f"benchmark.scored={self.scored}"
            )
        starts = range(0, len(ids) - step + 1, step)[: self.windows]
        return [self._sample(tokenizer, ids[start : start + step], start) for start in starts]

    def score(self, sample: Sample, prediction: str) -> dict[str, float]:
        return {}

    def _sample(self, tokenizer: Tokenizer, ids: list[int], start: int) -> Sample:
        return Sample(
            id=f"token-{start}",
            prompt=tokenizer.decode(ids[: self.length]),
            answers=(),
            max_new_tokens=self.scored,
            continuation=tokenizer.decode(ids[self.length :]),
            chat=False,
            meta={"start": start, "length": self.length},
        )
