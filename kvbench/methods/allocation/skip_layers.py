"""Some layers whole, an equal budget for the others."""

from collections.abc import Sequence
from dataclasses import field

from kvbench.errors import UserError
from kvbench.methods.allocation.base import Allocation, largest_remainder
from kvbench.utils.checked import NonNegative, checked


@checked
class SkipLayers(Allocation):
    """Layers that are not compressed, as the L2 norm's released code leaves out its first two.

    layers   indices of the whole layers, from 0.
    spread   false: every other layer keeps the budget, as in the released code, so the model keeps more than the
             requested ratio. true: the other layers keep less, so that the mean is the budget; each keeps at least the
             window and one token, so the mean is larger if the whole layers alone exceed the budget.
    """

    layers: list[NonNegative] = field(default_factory=lambda: [0, 1])
    spread: bool = False

    @property
    def overspends(self) -> str:
        return "some layers stay whole" if self.layers else ""

    def tokens(self, budget: int, n: int, window: int, num_layers: int) -> Sequence[int]:
        skipped = set(self.layers)
        if not skipped < set(range(num_layers)):
            raise UserError(
                f"layers={self.layers} must be some of this model's layers 0 to {num_layers - 1}, and not all of them"
            )
        compressed = num_layers - len(skipped)
        total = compressed * budget
        if self.spread:
            total = max(num_layers * budget - len(skipped) * n, compressed * (window + 1))
        shares = iter(largest_remainder([total / compressed] * compressed, total))
        return [n if layer in skipped else next(shares) for layer in range(num_layers)]
