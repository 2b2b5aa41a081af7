"""RULER's variable tracking: assignments in a chain, hidden in noise, after one worked example."""

import string
from itertools import pairwise
from random import Random

import numpy as np

from kvbench.benchmarks.ruler.fitting import Count, fitted
from kvbench.benchmarks.ruler.maker import Draft, Maker

_HOPS = 4
_EXAMPLE_TOKENS = 500
_EXAMPLE_VALUE = "12345"  # placeholder in the example; each sample replaces it


class ChainMaker(Maker):
    """A chain of variables with names of a few letters; the haystack's units are lines of noise."""

    letters: int

    def __init__(self, texts: dict[str, str], increment: int, stream: Random, values: np.random.RandomState):
        self.texts, self.random, self.values = texts, stream, values
        self.increment = self.probe = increment

    def draft(self, size: int, index: int) -> Draft:
        names: list[str] = []
        while len(names) <= _HOPS:
            name = "".join(self.random.choices(string.ascii_uppercase, k=self.letters))
            if name not in names:  # on a repeated name the official generator ends with an error
                names.append(name)
        value = self._value()
        # the blank after a hop is official
        chain = [f"VAR {names[0]} = {value}"] + [f"VAR {b} = VAR {a} " for a, b in pairwise(names)]
        lines = [self.texts["noise"]] * size
        for shift, position in enumerate(sorted(self.random.sample(range(size), len(chain)))):
            lines.insert(position + shift, chain[shift])
        context = "\n".join(lines)
        return Draft(
            self.texts["vt"].format(context=context, query=value),
            self.texts["vt_prefix"].format(query=value, num_v=len(chain)),
            names,
        )

    def least(self, index: int) -> int:
        return _HOPS + 1

    def _value(self) -> str:
        return str(self.values.randint(10000, 99999))


class ExampleMaker(ChainMaker):
    """The worked example, drawn once."""

    letters = 3

    def _value(self) -> str:
        return _EXAMPLE_VALUE


class TrackingMaker(ChainMaker):
    """A sample after the worked example, in which names and value are drawn again for every sample."""

    letters = 5

    def __init__(self, texts: dict[str, str], length: int, chat_tokens: int, seed: int, tokens: Count):
        stream, values = Random(seed), np.random.RandomState(seed)  # two streams, as the official generator has them
        example = ExampleMaker(texts, 5, stream, values)
        ((draft, _),) = fitted(example, 1, _EXAMPLE_TOKENS - chat_tokens, tokens)
        self.example, self.names = f"{draft.text} {' '.join(draft.outputs)}\n", draft.outputs
        super().__init__(texts, 10 if length >= 4096 else 5, stream, values)
        self.example_tokens = tokens(self.example)

    def trial(self, size: int) -> Draft:
        return super().draft(size, 0)

    def draft(self, size: int, index: int) -> Draft:
        bare = super().draft(size, index)
        return Draft(self._worked_example() + "\n" + bare.input, bare.prefix, bare.outputs)

    def _worked_example(self) -> str:
        text = self.example
        for name in self.names:
            new = "".join(self.random.choices(string.ascii_uppercase, k=len(name)))
            text = text.replace(name, new)
        return text.replace(_EXAMPLE_VALUE, str(self.values.randint(10000, 99999)))
