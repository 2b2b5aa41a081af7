"""Passkey retrieval (Mohtashami and Jaggi 2023): a number in lines of noise that say the same again and again."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import repeat

from transformers import PreTrainedTokenizerBase

from kvbench.benchmarks.base import Sample
from kvbench.benchmarks.niah.grid import NeedleGrid
from kvbench.benchmarks.niah.placement import at_sentence_ends, cut, encode, take
from kvbench.benchmarks.niah.sources import ruler_noise
from kvbench.metrics.needle import first_number, leading_digits
from kvbench.utils.validation import at_least, choice

_NOISE = "The river is slow. The hills are low. The wind is mild. On we walk. Soon we turn for home."


@dataclass
class PassKey(NeedleGrid):
    """A pass key of `digits` digits, drawn anew for every cell and seed; between two sentences at its depth.

    noise="own" repeats a line of ours, noise="ruler" the line of RULER's noise tasks, which is Mohtashami and
    Jaggi's, read from the package lm-eval. With `haystack_dir` the texts of a folder stand in its place, as in
    longctx_bench. The wording of key, instruction and question is ours. The answer is begun for the model.

    Scores: 1 if the first number of the answer is the key, as theirs; and the share of leading digits.
    """

    seeds: int = 1
    digits: int = 5
    noise: str = "own"
    max_new_tokens: int = 16
    name: str = "passkey"
    metrics = ("exact", "digits")

    def __post_init__(self):
        super().__post_init__()
        choice("benchmark.noise", self.noise, ("own", "ruler"))
        at_least("benchmark.seeds", self.seeds, 1)
        at_least("benchmark.digits", self.digits, 1)

    def haystack(self, seed: int, separator: str = "\n") -> Iterator[str]:
        if self.haystack_dir is not None:
            return super().haystack(seed, separator)
        return repeat((_NOISE if self.noise == "own" else ruler_noise()) + separator)

    def samples(self, tokenizer: PreTrainedTokenizerBase) -> list[Sample]:
        return [sample for seed in range(self.seeds) for sample in self._grid(tokenizer, seed)]

    def score(self, sample: Sample, prediction: str) -> dict[str, float]:
        (key,) = sample.answers
        return {"exact": first_number(key, prediction), "digits": leading_digits(key, prediction)}

    def _grid(self, tokenizer: PreTrainedTokenizerBase, seed: int) -> Iterator[Sample]:
        text = take(self.haystack(seed), tokenizer, max(self.lengths))
        task = "A pass key is hidden in this text. Find it and keep it in mind."
        question = "What is the pass key? Answer with the number only."
        for length in self.lengths:
            for depth in self.depths:
                rng = random.Random(f"{seed}-{length}-{depth:g}")
                key = str(rng.randrange(10 ** (self.digits - 1), 10**self.digits))
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
                    meta={"task": self.name, "length": length, "depth": depth, "seed": seed},
                )
