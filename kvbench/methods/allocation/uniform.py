"""The same budget in every layer."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Uniform:
    """The same budget in every layer."""

    def tokens(self, budget: int, n: int, window: int, num_layers: int) -> list[int]:
        return [budget] * num_layers
