"""The forward pass over the prompt that a method requires."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import TypeVar

from torch import Tensor
from transformers import PreTrainedModel

from kvbench.prefill.state import Needs, PrefillState, Release

Item = TypeVar("Item")


class PrefillPlan(ABC):
    """A kind of forward pass with its parameters. Settings with equal plans share one pass, so a plan is a frozen
    dataclass, which compares and hashes by value."""

    @abstractmethod
    def run(
        self, model: PreTrainedModel, input_ids: Tensor, needs: Needs, release: Release | None = None
    ) -> PrefillState:
        """Run `model` over input_ids [n] and make the observations in `needs`.

        With `release` each layer's state is passed to it as soon as it is complete, lowest layer first, and the
        returned state has no layers.
        """


def by_plan(items: Iterable[Item], plan_of: Callable[[Item], PrefillPlan]) -> dict[PrefillPlan, list[Item]]:
    """Items that need a prefill of one prompt, grouped by the pass that they can share."""
    groups: dict[PrefillPlan, list[Item]] = {}
    for item in items:
        groups.setdefault(plan_of(item), []).append(item)
    return groups
