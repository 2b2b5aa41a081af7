"""RULER's needles: sentences with a key and a value, hidden in noise, in essays or among other needles."""

import uuid
from itertools import pairwise
from random import Random

from kvbench.benchmarks.ruler.essays import Essays
from kvbench.benchmarks.ruler.maker import Draft, Maker
from kvbench.benchmarks.ruler.tasks import Task
from kvbench.benchmarks.ruler.words import pairs

_DEPTHS = [round(100 * i / 39) for i in range(40)]  # per cent


class NeedleMaker(Maker):
    """Generates samples of the niah tasks; the size of a haystack is its lines, or its words where it is essays.

    `essays` are the haystack of a task with source="essay"; they are None for other tasks.
    """

    def __init__(self, task: Task, texts: dict[str, str], essays: Essays | None, length: int, seed: int):
        self.task, self.essays, self.seed = task, essays, seed
        self.needle, self.noise = texts["needle"], texts["noise"]
        self.template, self.prefix, self.value_name = texts["niah"], texts["niah_prefix"], task.values
        if task.num_queries * task.num_values == 1:
            self.template, self.prefix = _singular(self.template), _singular(self.prefix)
            self.value_name = task.values[:-1]
        self.increment = self.probe = 500 if task.source == "essay" else 25 if length >= 4096 else 5
        self.random = Random(seed)

    def draft(self, size: int, index: int) -> Draft:
        task = self.task
        keys, values = [], []
        for _ in range(task.num_keys):
            keys.append(self._drawn(task.keys))
            values.append([self._drawn(task.values) for _ in range(task.num_values)])
        needles = [self._sentence(key, value) for key, group in zip(keys, values, strict=True) for value in group]
        Random(self.seed).shuffle(needles)
        if self.essays is not None:
            context = self._among_sentences(needles, self.essays.sentences(size))
        else:
            context = self._among_lines(needles, size)
        queried = self.random.sample(range(task.num_keys), task.num_queries)
        *others, last = [keys[i] for i in queried]
        query = f"{', '.join(others)}, and {last}" if others else last
        return Draft(
            self.template.format(type_needle_v=self.value_name, context=context, query=query),
            self.prefix.format(type_needle_v=self.value_name, query=query),
            [value for i in queried for value in values[i]],
        )

    def _among_lines(self, needles: list[str], size: int) -> str:
        if self.task.source == "noise":
            lines = [self.noise] * size
        else:
            lines = [self._sentence(self._drawn(self.task.keys), self._drawn(self.task.values)) for _ in range(size)]
        # from the last position on, so that the earlier ones stay where they are
        positions = sorted(self.random.sample(range(size), len(needles)), reverse=True)
        for position, needle in zip(positions, needles, strict=True):
            lines.insert(position, needle)
        return "\n".join(lines)

    def _among_sentences(self, needles: list[str], sentences: list[str]) -> str:
        depths = self.random.sample(_DEPTHS, len(needles))
        cuts = [0, *sorted(int(len(sentences) * (depth / 100)) for depth in depths), len(sentences)]
        parts = [" ".join(sentences[start:end]) for start, end in pairwise(cuts)]
        # an empty part before the first sentence leaves its blank, as in the official text
        return " ".join(text for pair in zip(parts, [*needles, None], strict=True) for text in pair if text is not None)

    def _sentence(self, key: str, value: str) -> str:
        return self.needle.format(type_needle_v=self.task.values, key=key, value=value)

    def _drawn(self, kind: str) -> str:
        if kind == "numbers":
            return str(self.random.randint(10**6, 10**7 - 1))
        if kind == "words":
            return self.random.choice(pairs())
        return str(uuid.UUID(int=self.random.getrandbits(128), version=4))


def _singular(text: str) -> str:
    for plural, singular in (("Some", "A"), ("are all", "is"), ("are", "is"), ("answers", "answer")):
        text = text.replace(plural, singular)
    return text
