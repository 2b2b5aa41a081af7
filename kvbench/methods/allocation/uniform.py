"""The same budget in every layer."""

from kvbench.methods.allocation.base import Allocation
from kvbench.utils.checked import checked


@checked(frozen=True)
class Uniform(Allocation):
    """The same budget in every layer."""

    def tokens(self, budget: int, n: int, window: int, num_layers: int) -> list[int]:
        return [budget] * num_layers
