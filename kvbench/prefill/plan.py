"""What a method asks of the prefill: which forward pass to run over the prompt."""

from abc import ABC, abstractmethod

from torch import Tensor
from transformers import PreTrainedModel

from kvbench.prefill.state import Needs, PrefillState, Release


class PrefillPlan(ABC):
    """One kind of forward pass with its parameters. Settings whose plans are equal share one pass, so plans are
    frozen dataclasses: they compare and hash by value."""

    @abstractmethod
    def run(
        self, model: PreTrainedModel, input_ids: Tensor, needs: Needs, release: Release | None = None
    ) -> PrefillState:
        """Run `model` over input_ids [n] and make the observations in `needs`.

        With `release` each layer's state is passed to it as soon as it is complete, lowest layer first, and the
        returned state has no layers.
        """
