"""What the configuration of a benchmark tells of its samples before any data are read: their tasks and sizes.

Papers' tables and the costs of experiments ask for it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from kvbench.benchmarks.published_data import select


@dataclass(frozen=True)
class PromptSize:
    """The size of one sample: tokens of its prompt (None: not known), and the largest number of tokens of its answer.

    bounded  whether the prompt never has more than `tokens` tokens, with any tokeniser.
    batch    sequences that decode the prompt together, in a run of benchmark=speed; None: as many as fit.
    repeats  how often each setting reads and answers it.
    """

    tokens: int | None
    new_tokens: int
    bounded: bool = True
    batch: int | None = 1
    repeats: int = 1


class Planned:
    """By default nothing is known: a table's columns are then tasks of the records, and an experiment has no cost.

    task_sets   the names that the key `tasks` accepts, each with its tasks; in a table's columns, a column for each.
    task_means  further names of columns, each with the tasks whose mean it has.
    headers     papers' abbreviations of tasks and columns.
    """

    task_sets: ClassVar[Mapping[str, Sequence[str]]] = {}
    task_means: ClassVar[Mapping[str, Sequence[str]]] = {}
    headers: ClassVar[Mapping[str, str]] = {}
    rows_by_length: ClassVar[bool] = False  # whether a table has a row for each of the key `lengths`

    @classmethod
    def tasks_of(cls, names: str | Sequence[str]) -> list[str]:
        """The tasks, each once, that the key `tasks` selects by one or several names; [] where they are not known.

        Raises UserError for an unknown name.
        """
        names = [names] if isinstance(names, str) else names
        return select(names, cls.task_sets, "task in benchmark.tasks") if cls.task_sets else []

    @classmethod
    def prompt_sizes(cls, config: Mapping[str, Any]) -> dict[str, list[PromptSize]] | None:
        """The sizes of the samples of a configuration, by task; None where they are not known."""
        return None
