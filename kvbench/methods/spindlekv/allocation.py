"""SpindleKV's allocation: keep ratios that fall linearly over the layers."""

import math
from typing import Annotated

from pydantic import Field

from kvbench.methods.allocation.base import Allocation
from kvbench.utils.checked import checked


@checked(frozen=True)
class LinearPyramid(Allocation):
    """SpindleKV (Tang et al. 2025, §3.3, equations 5 to 7): keep ratios fall linearly, none below beta.

    Let r_c be the mean share of the context (all tokens before the window) to keep, and alpha = (1 + beta) / 2. If
    beta < r_c <= alpha, layer 0 keeps 2r_c - beta and the last layer beta; above alpha they keep 1 and 2r_c - 1. The
    paper prints 0.05 for beta and 1 - 2r_c, which is negative there. It does not define ratios below beta; here all
    layers then keep r_c. The mean over layers is r_c, minus the effect of rounding down to whole tokens.
    """

    beta: Annotated[float, Field(ge=0, lt=1)] = 0.05

    def ratios(self, r_c: float, num_layers: int) -> list[float]:
        """Keep ratio of the context in each layer, for a mean of r_c."""
        bottom, top = r_c, r_c
        if r_c > (1 + self.beta) / 2:
            bottom, top = 1.0, 2 * r_c - 1
        elif r_c > self.beta:
            bottom, top = 2 * r_c - self.beta, self.beta
        if num_layers == 1:
            return [r_c]
        return [bottom + (top - bottom) * layer / (num_layers - 1) for layer in range(num_layers)]

    def tokens(self, budget: float, n: int, window: int, num_layers: int) -> list[int]:
        context = n - window
        r_c = max(budget - window, 0) / context
        # 1e-9 forgives float noise on whole numbers
        return [math.floor(ratio * context + 1e-9) + window for ratio in self.ratios(r_c, num_layers)]
