"""A benchmark: the code in one of many lines."""

import random

from kvbench.benchmarks import Benchmark, Sample
from kvbench.utils.checked import Positive, checked


@checked(prefix="benchmark.")
class CodeInLine(Benchmark):
    """`count` prompts of `lines` lines, each with a code; the question asks for the code of one line."""

    lines: Positive = 60
    count: Positive = 10
    name: str = "code_in_line"
    metrics = ("exact",)

    @property
    def longest(self):
        return 16 * self.lines + 100

    def samples(self, tokenizer):
        return [self.sample(random.Random(seed), f"line-{seed}") for seed in range(self.count)]

    def sample(self, rng, name):
        codes = rng.sample(range(1000, 10000), self.lines)
        text = "\n".join(f"The code of line {number} is {code}." for number, code in enumerate(codes, 1))
        number = rng.randrange(self.lines) + 1
        question, prefix = f"What is the code of line {number}?", f"The code of line {number} is"
        answer = str(codes[number - 1])
        return Sample(name, f"{text}\n\n{question}", (answer,), 8, question, prefix, meta={"line": number})

    def score(self, sample, prediction):
        return {"exact": float(sample.answers[0] in prediction)}
