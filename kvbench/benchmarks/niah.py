"""Needle in a Haystack (Kamradt 2023): one sentence hidden at a depth of a long text."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from transformers import PreTrainedTokenizerBase

from kvbench.benchmarks import haystack
from kvbench.benchmarks.base import Benchmark, Sample
from kvbench.errors import UserError
from kvbench.methods.base import at_least, choice
from kvbench.metrics.needle import exact_number, leading_digits, rouge1_f
from kvbench.report.heatmap import draw_heatmaps

_CITIES = "Lisbon Oslo Nairobi Kyoto Quito Riga Hanoi Tunis Porto Bergen Lima Dakar Zagreb Cork Turin Perth".split()


@dataclass
class NeedleInAHaystack(Benchmark):
    """A grid of context lengths × needle depths, with `seeds` needles and haystacks in every cell.

    needle="number"    a seven-digit number to recite; scores: share of leading digits, exact match.
    needle="sentence"  `sentence`, asked for by `question`; score: ROUGE-1 F of the answer to the sentence.

    A length counts the whole prompt: the text takes `length - buffer` tokens, question and chat template
    fit in the buffer. The needle goes in at depth % of the text's tokens, moved back to the end of a
    sentence; depth 100 appends it.
    """

    lengths: list[int]
    depths: list[float]
    seeds: int = 1
    needle: str = "number"
    sentence: str = ""
    question: str = ""
    haystack_dir: str | None = None
    buffer: int = 200
    max_new_tokens: int = 32
    name: str = "niah"

    def __post_init__(self):
        choice("benchmark.needle", self.needle, ("number", "sentence"))
        at_least("benchmark.seeds", self.seeds, 1)
        at_least("benchmark.max_new_tokens", self.max_new_tokens, 1)
        for length in self.lengths:
            at_least("a length in benchmark.lengths", length, self.buffer + 100)
        for depth in self.depths:
            if not isinstance(depth, int | float) or not 0 <= depth <= 100:
                raise UserError(f"depth {depth!r} in benchmark.depths is outside 0 to 100 (per cent)")
        if self.needle == "sentence" and not (self.sentence and self.question):
            raise UserError("benchmark.needle=sentence needs benchmark.sentence and benchmark.question")
        self.metrics = ("digits", "exact") if self.needle == "number" else ("rouge1",)

    @property
    def longest(self) -> int:
        return max(self.lengths) + self.max_new_tokens

    def samples(self, tokenizer: PreTrainedTokenizerBase) -> list[Sample]:
        return [sample for seed in range(self.seeds) for sample in self._grid(tokenizer, seed)]

    def score(self, sample: Sample, prediction: str) -> dict[str, float]:
        (answer,) = sample.answers
        if self.needle == "number":
            return {
                "digits": leading_digits(answer, prediction),
                "exact": exact_number(answer, prediction),
            }
        return {"rouge1": rouge1_f(answer, prediction)}

    def draw(self, records: pd.DataFrame, folder: Path, caption: str) -> list[Path]:
        return draw_heatmaps(records, self.metrics[0], folder / "heatmap", caption)

    def _grid(self, tokenizer: PreTrainedTokenizerBase, seed: int) -> Iterator[Sample]:
        needle, question, answer = self._needle(seed)
        source = haystack.from_folder(self.haystack_dir, seed) if self.haystack_dir else haystack.generated(seed)
        text = _take(source, tokenizer, max(self.lengths))
        for length in self.lengths:
            for depth in self.depths:
                context = insert(needle, text, depth, length - self.buffer, tokenizer)
                yield Sample(
                    id=f"{self.needle}-{length}-{depth:g}-{seed}",
                    prompt=f"Read this text and remember what it says.\n\n{context}\n\n{question}",
                    answers=(answer,),
                    max_new_tokens=self.max_new_tokens,
                    meta={"length": length, "depth": depth, "seed": seed},
                )

    def _needle(self, seed: int) -> tuple[str, str, str]:
        """Needle, question and what is compared with the answer."""
        if self.needle == "sentence":
            return self.sentence, self.question, self.sentence
        rng = random.Random(seed)
        city, number = rng.choice(_CITIES), str(rng.randrange(10**6, 10**7))
        return (
            f"The secret number of {city} is {number}.",
            f"What is the secret number of {city}? Answer with the number only.",
            number,
        )


def _take(source: Iterator[str], tokenizer: PreTrainedTokenizerBase, tokens: int) -> list[int]:
    """The first `tokens` token ids of a text that comes in pieces."""
    text = ""
    while len(ids := tokenizer(text, add_special_tokens=False)["input_ids"]) < tokens:
        # a token is seldom longer than 8 characters: few rounds, little waste
        missing = 8 * (tokens - len(ids))
        while missing > 0:
            piece = next(source)
            text += piece
            missing -= len(piece)
    return ids[:tokens]


def insert(needle: str, text: list[int], depth: float, tokens: int, tokenizer: PreTrainedTokenizerBase) -> str:
    """A context of about `tokens` tokens: the text cut to leave room for the needle, and the needle in it.

    The needle goes in at depth % of the text's tokens, then back to the end of the previous sentence (at the
    start if there is none); at depth 100 it is appended.
    """
    room = tokens - len(tokenizer(" " + needle, add_special_tokens=False)["input_ids"])
    text = text[:room]
    if depth >= 100:
        return tokenizer.decode(text).rstrip() + " " + needle
    before = tokenizer.decode(text[: int(len(text) * depth / 100)])
    whole = tokenizer.decode(text)
    end = max(before.rfind(stop) for stop in (".", "!", "?")) + 1
    head, tail = whole[:end].rstrip(), whole[end:].lstrip()
    return " ".join(part for part in (head, needle, tail) if part)
