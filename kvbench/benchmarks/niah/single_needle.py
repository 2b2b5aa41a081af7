"""Needle in a Haystack (Kamradt 2023) with needles of our own: a number to recite, digit by digit."""

from collections.abc import Iterator
from typing import ClassVar, Literal, NamedTuple

from kvbench.benchmarks.base import Sample
from kvbench.benchmarks.niah.grid import NeedleGrid, seed_of
from kvbench.benchmarks.niah.number_needles import number_needle
from kvbench.errors import UserError
from kvbench.metrics.needle import exact_number, leading_digits, rouge1_f
from kvbench.utils.checked import Positive, checked
from kvbench.utils.tokenizer import Tokenizer


class Needle(NamedTuple):
    text: str
    question: str
    answer: str  # the expected answer


@checked(prefix="benchmark.")
class NeedleInAHaystack(NeedleGrid):
    """One needle for each cell of the grid and seed, each in its own text.

    needle="number"    a seven-digit number to recite, different in every cell; scores: share of leading digits, exact
                       match.
    needle="sentence"  `sentence`, with the question `question`; score: ROUGE-1 F of the answer to the sentence.

    The needle is inserted at depth % of the text's tokens, moved back to the end of a sentence; depth 100 appends it.
    """

    chat: ClassVar[bool] = True
    task: ClassVar[str] = "Read this text and remember what it says.\n\n"

    metrics = tuple("digits exact rouge1".split())

    seeds: Positive = 1
    needle: Literal["number", "sentence"] = "number"
    sentence: str = ""
    question: str = ""
    name: str = "niah"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.needle == "sentence" and not (self.sentence and self.question):
            raise UserError("benchmark.needle=sentence needs benchmark.sentence and benchmark.question")
        self.kind: str = self.needle  # begins the ids of samples
        self.metrics = ("digits", "exact") if self.needle == "number" else ("rouge1",)
        self.packages = () if self.needle == "number" else ("rouge_score",)

    def samples(self, tokenizer: Tokenizer) -> list[Sample]:
        return [sample for seed in range(self.seeds) for sample in self._grid(tokenizer, seed)]

    def score(self, sample: Sample, prediction: str) -> dict[str, float]:
        (answer,) = sample.answers
        if self.needle == "number":
            return {"digits": leading_digits(answer, prediction), "exact": exact_number(answer, prediction)}
        return {"rouge1": rouge1_f(answer, prediction)}

    def _grid(self, tokenizer: Tokenizer, seed: int) -> Iterator[Sample]:
        for length in self.lengths:
            for depth in self.depths:
                cell_seed = seed_of(length, depth, seed)
                needle = self._needle(cell_seed)
                context = self.context(length, cell_seed, [(depth, needle.text)], tokenizer)
                yield Sample(
                    id=f"{self.kind}-{length}-{depth:g}-{seed}",
                    prompt=f"{self.task}{context}\n\n{needle.question}",
                    answers=(needle.answer,),
                    max_new_tokens=self.max_new_tokens,
                    question=needle.question,
                    chat=self.chat,
                    stop_at_newline=not self.chat,
                    unit=self.text_of(cell_seed),
                    meta={"task": self.name, "length": length, "depth": depth, "seed": seed},
                )

    def _needle(self, seed: int) -> Needle:
        if self.needle == "sentence":
            return Needle(self.sentence, self.question, self.sentence)
        needle = number_needle(seed)
        return Needle(needle.text, needle.question, needle.number)


def remember(context: str, question: str) -> str:
    """The prompt of kvbench's own benchmarks."""
    return f"{NeedleInAHaystack.task}{context}\n\n{question}"
