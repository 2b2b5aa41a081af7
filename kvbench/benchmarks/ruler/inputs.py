"""The inputs of RULER's samples, read when a task needs them and identified by hashes."""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from kvbench.benchmarks.ruler.essays import Essays
from kvbench.benchmarks.ruler.published_questions import SOURCES, english_words_path
from kvbench.benchmarks.ruler.qa import Questions
from kvbench.benchmarks.ruler.tasks import TASKS
from kvbench.benchmarks.ruler.templates import official_texts
from kvbench.benchmarks.ruler.words import word_lists
from kvbench.errors import UserError
from kvbench.utils.hashing import file_hash
from kvbench.utils.regular_files import read_text


@dataclass
class Inputs:
    """Texts, words, essays and questions; the options are keys of conf/benchmark/ruler.yaml."""

    seed: int = 42
    essays_dir: str | None = None
    sentences: str | None = None
    squad: str | None = None
    hotpotqa: str | None = None
    english_words: str | None = None
    _questions: dict[str, Questions] = field(default_factory=dict, repr=False)
    _paths: dict[str, Path] = field(default_factory=dict, repr=False)

    def check(self, tasks: Iterable[str], count: int) -> None:
        """Raise UserError if an input of `count` samples of the tasks is missing; it says how to get it."""
        for name in tasks:
            source = TASKS[name].source
            try:
                self.identity(name)
                if source in SOURCES and getattr(self, source) is not None:
                    self.questions(source, count)  # a fetched file was checked against its hash
            except UserError as error:
                users = [other for other in TASKS if TASKS[other].source == source]
                raise UserError(f"{error} (needed by {', '.join(users)}; benchmark.tasks= chooses others)") from error

    def identity(self, name: str) -> list[str]:
        """Hashes of the inputs of a task's samples."""
        task = TASKS[name]
        hashes = [self.texts_sha256]
        if task.kind in ("niah", "cwe"):
            hashes.append(word_lists().sha256)
        if task.kind == "cwe" and self.english_words is not None:
            hashes.append(file_hash(english_words_path(self.english_words)))
        if task.source == "essay":
            hashes.append(self.essays.sha256)
        if task.source in SOURCES:
            hashes.append(file_hash(self.path(task.source)))
        return hashes

    @cached_property
    def texts(self) -> dict[str, str]:
        return official_texts()

    @cached_property
    def texts_sha256(self) -> str:
        return hashlib.sha256(json.dumps(self.texts, sort_keys=True).encode()).hexdigest()

    @cached_property
    def essays(self) -> Essays:
        return Essays(self.essays_dir, self.sentences, self.seed)

    @cached_property
    def more_words(self) -> list[str]:
        """RULER's english_words.json, for lists longer than wonderwords'."""
        path = english_words_path(self.english_words)
        try:
            words = list(json.loads(read_text(path)).values())
            if words and all(isinstance(word, str) for word in words):
                return words
        except (ValueError, AttributeError):
            pass
        raise UserError(f"{path} is not RULER's english_words.json: an object whose values are words")

    def path(self, source: str) -> Path:
        """The file of a collection of questions."""
        if source not in self._paths:
            self._paths[source] = SOURCES[source].path(getattr(self, source))
        return self._paths[source]

    def questions(self, source: str, count: int) -> Questions:
        """A collection with at least `count` questions."""
        if source not in self._questions:
            self._questions[source] = SOURCES[source].read(self.path(source))
        available = len(self._questions[source].questions)
        if available < count:
            raise UserError(
                f"{self.path(source)} holds {available} questions with an answer, fewer than "
                f"benchmark.num_samples={count}"
            )
        return self._questions[source]
