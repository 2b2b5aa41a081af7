"""The shared work of one prompt's settings: a prefill, and the passes of the model in which they decode.

Two estimates turn it into time: from a GPU's data sheet, for experiments (kvbench.papers.gpu_estimate), and
from the pace of this machine, for a run's progress (kvbench.runner.estimate).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from kvbench.evaluation.settings import Setting
from kvbench.prefill.plan import by_plan


@dataclass(frozen=True)
class SharedWork:
    """Settings that share a prefill."""

    alone: list[Setting]  # settings that decode one by one
    together: list[Setting]  # settings that decode as batches
    at_once: int  # sequences of such a batch, at most

    @property
    def settings(self) -> list[Setting]:
        return [*self.alone, *self.together]

    @property
    def passes(self) -> list[int]:
        """The sequences of each pass of the model in which every setting decodes one token."""
        left = len(self.together)
        batches = [min(self.at_once, left - start) for start in range(0, left, self.at_once or 1)]
        return [1] * len(self.alone) + batches


def shared_work(
    settings: Sequence[Setting], n: int, num_layers: int, batch: str, one_by_one: bool = False
) -> list[SharedWork]:
    """The settings of a prompt of n tokens by the prefill that they can share; `batch` is decode.batch.

    num_layers: number of compressed layers. one_by_one: every setting decodes alone, whatever `batch` is.
    """
    works = []
    for group in by_plan(settings, lambda setting: setting.plan(n, num_layers)).values():
        alone: list[Setting] = []
        together: list[Setting] = []
        for setting in group:
            joins = not one_by_one and batch != "1" and (batch == "all" or setting.method.batches)
            (together if joins else alone).append(setting)
        at_once = len(together) if batch in ("auto", "all") else min(int(batch), len(together))
        works.append(SharedWork(alone, together, at_once))
    return works
