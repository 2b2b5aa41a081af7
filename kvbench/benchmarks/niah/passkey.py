"""Passkey retrieval (Mohtashami and Jaggi 2023): a number in one line of noise that repeats."""

import random
from collections.abc import Iterator
from itertools import repeat
from typing import Annotated, Literal

from pydantic import Field

from kvbench.benchmarks.base import Sample
from kvbench.benchmarks.niah.grid import NeedleGrid
from kvbench.benchmarks.niah.placement import at_sentence_ends, cut, encode, take
from kvbench.benchmarks.niah.published_texts import ruler_noise
from kvbench.errors import UserError
from kvbench.metrics.needle import first_number, leading_digits
from kvbench.utils.checked import Positive, checked
from kvbench.utils.tokenizer import Tokenizer

_NOISE = "The river is slow. The hills are low. The wind is mild. On we walk. Soon we turn for home."

LONGEST_KEY = 1000  # digits


@checked(prefix="benchmark.")
class PassKey(NeedleGrid):
    """A pass key of `digits` digits, different in every cell and seed, between two sentences at its depth.

    noise="own" repeats a line of kvbench's, noise="ruler" the line of RULER's noise tasks, which is Mohtashami and
    Jaggi's, read from the package lm-eval. `haystack_dir` replaces the noise by the texts of a folder, as in
    longctx_bench. The wording of key, instruction and question is kvbench's. The prompt ends with the beginning of
    the answer.

    Scores: 1 if the first number of the answer is the key, as in the original; and the share of leading digits.
    """

    seeds: Positive = 1
    digits: Annotated[int, Field(ge=1, le=LONGEST_KEY)] = 5
    noise: Literal["own", "ruler"] = "own"
    max_new_tokens: Positive = 16
    name: str = "passkey"
    metrics = ("exact", "digits")

    def haystack(self, seed: int, separator: str = "\n") -> Iterator[str]:
        if self.haystack_dir is not None:
            return super().haystack(seed, separator)
        return repeat((_NOISE if self.noise == "own" else ruler_noise()) + separator)

    def samples(self, tokenizer: Tokenizer) -> list[Sample]:
        return [sample for seed in range(self.seeds) for sample in self._grid(tokenizer, seed)]

    def score(self, sample: Sample, prediction: str) -> dict[str, float]:
        (key,) = sample.answers
        return {"exact": first_number(key, prediction), "digits": leading_digits(key, prediction)}

    def _grid(self, tokenizer: Tokenizer, seed: int) -> Iterator[Sample]:
        text = take(self.haystack(seed), tokenizer, max(self.lengths))
        task = "A pass key is hidden in this text. Find it and keep it in mind."
        question = "What is the pass key? Answer with the number only."
        for length in self.lengths:
            for depth in self.depths:
                rng = random.Random(f"{seed}-{length}-{depth:g}")
                key = str(rng.randrange(10 ** (self.digits - 1), 10**self.digits))
                if (needed := len(encode(f" {key}", tokenizer))) > self.max_new_tokens:
                    raise UserError(
                        f"benchmark.max_new_tokens={self.max_new_tokens} cuts a pass key of {self.digits} digits, "
                        f"which takes {needed} tokens of this model"
                    )
                needle = f"The pass key is {key}. Do not forget that {key} is the pass key."
                room = cut(text, length - self.buffer, len(encode(" " + needle, tokenizer)))
                context = at_sentence_ends(room, [(depth, needle)], tokenizer)
                yield Sample(
                    id=f"passkey-{length}-{depth:g}-{seed}",
                    prompt=f"{task}\n\n{context}\n\n{question}",
                    answers=(key,),
                    max_new_tokens=self.max_new_tokens,
                    question=question,
                    prefix="The pass key is",
                    unit=self.text_of(seed) if self.haystack_dir is not None else "",
                    meta={"task": self.name, "length": length, "depth": depth, "seed": seed},
                )
