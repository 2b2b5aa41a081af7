"""Several needles in one context: one number at every depth, one question for each or one for all."""

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pandas as pd

from kvbench.benchmarks.base import Heatmap, Sample
from kvbench.benchmarks.niah.grid import NeedleGrid, seed_of
from kvbench.benchmarks.niah.number_needles import MOST_NEEDLES, NumberNeedle, number_needles
from kvbench.benchmarks.niah.single_needle import remember
from kvbench.errors import UserError
from kvbench.metrics.needle import exact_number, leading_digits
from kvbench.utils.checked import Positive, checked
from kvbench.utils.tokenizer import Tokenizer


@checked(prefix="benchmark.")
class MultiNeedle(NeedleGrid):
    """A context per length and seed, each from its own text, with a number needle at each of `depths`."""

    seeds: Positive = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 2 <= len(self.depths) <= MOST_NEEDLES:
            raise UserError(f"benchmark.depths has {len(self.depths)} depths: 2 to {MOST_NEEDLES} are required")

    def samples(self, tokenizer: Tokenizer) -> list[Sample]:
        """All samples; samples about one context follow each other."""
        samples = []
        for seed in range(self.seeds):
            for length in self.lengths:
                text_seed = seed_of(length, seed)
                needles = dict(zip(self.depths, number_needles(text_seed, len(self.depths)), strict=True))
                placed = [(depth, needle.text) for depth, needle in needles.items()]
                context = self.context(length, text_seed, placed, tokenizer)
                meta = {"task": self.name, "length": length, "seed": seed, "context": f"{length}-{seed}"}
                unit = self.text_of(text_seed)
                samples += [replace(sample, unit=unit) for sample in self.ask(context, needles, meta)]
        return samples

    @abstractmethod
    def ask(self, context: str, needles: dict[float, NumberNeedle], meta: dict[str, Any]) -> Iterator[Sample]:
        """The samples about one context; `needles` maps depths to needles."""


@checked(prefix="benchmark.")
class NeedlesOneByOne(MultiNeedle):
    """A sample per needle of a context, so that with question=hidden one compressed cache serves all.

    Scores: share of leading digits, exact match. No two numbers of a context have the same first digit, so another
    needle's number scores 0.
    """

    name: str = "niah_multi"
    metrics = ("digits", "exact")

    def ask(self, context: str, needles: dict[float, NumberNeedle], meta: dict[str, Any]) -> Iterator[Sample]:
        for depth, needle in needles.items():
            yield Sample(
                id=f"multi-{meta['context']}-{depth:g}",
                prompt=remember(context, needle.question),
                answers=(needle.number,),
                max_new_tokens=self.max_new_tokens,
                question=needle.question,
                meta=meta | {"depth": depth, "needles": len(needles)},
            )

    def score(self, sample: Sample, prediction: str) -> dict[str, float]:
        (number,) = sample.answers
        return {"digits": leading_digits(number, prediction), "exact": exact_number(number, prediction)}


@checked(prefix="benchmark.")
class NeedlesAtOnce(MultiNeedle):
    """One question for all needles of a context, in the order of their depths.

    Scores: share of the numbers in the answer, mean share of leading digits, 1 if all numbers are in the answer.
    """

    max_new_tokens: Positive = 128
    name: str = "niah_multi_at_once"
    metrics = ("found", "digits", "exact")

    def ask(self, context: str, needles: dict[float, NumberNeedle], meta: dict[str, Any]) -> Iterator[Sample]:
        *cities, last = [needle.city for needle in needles.values()]
        named = f"{', '.join(cities)} and {last}"
        question = f"What are the secret numbers of {named}? Answer with the numbers only, in this order."
        yield Sample(
            id=f"multi-{meta['context']}",
            prompt=remember(context, question),
            answers=tuple(needle.number for needle in needles.values()),
            max_new_tokens=self.max_new_tokens,
            question=question,
            meta=meta | {"depths": list(needles), "needles": len(needles)},
        )

    def score(self, sample: Sample, prediction: str) -> dict[str, float]:
        exact = [exact_number(number, prediction) for number in sample.answers]
        digits = [leading_digits(number, prediction) for number in sample.answers]
        return {"found": sum(exact) / len(exact), "digits": sum(digits) / len(digits), "exact": float(all(exact))}

    def heatmap(self, records: pd.DataFrame) -> Heatmap:
        """A cell per length and needle: whether the number at that depth was found."""
        needles = [
            record | {"depth": depth, "scores": {"found": exact_number(number, record["prediction"])}}
            for record in records.to_dict("records")
            for depth, number in zip(record["depths"], record["answers"], strict=True)
        ]
        return Heatmap(pd.DataFrame(needles), "found")
