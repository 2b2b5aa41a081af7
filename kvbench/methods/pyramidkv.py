"""PyramidKV's allocation: an arithmetic sequence over the layers."""

from collections.abc import Callable
from functools import partial
from typing import Annotated, Literal, NamedTuple

from pydantic import Field

from kvbench.methods.allocation.base import Allocation, largest_remainder
from kvbench.utils.checked import checked


class Ends(NamedTuple):
    """Shares of the lowest and the highest layer."""

    bottom: float
    top: float


@checked(frozen=True)
class Pyramid(Allocation):
    """PyramidKV (Cai et al. 2024, arXiv 2406.02069, §3.2): an arithmetic sequence, most tokens in the lowest layer.

    With c = budget - window the top layer selects c/beta tokens and the bottom layer 2c - c/beta. The paper prints the
    two in the wrong order and a divisor m instead of m - 1; these readings exist:

    alloc="exact"     the rule that the text intends, rounded by largest remainders: it spends exactly m·c.
    alloc="official"  the released code since 2024-09-30: a floored step overspends (up to 27 % at 80 layers and a
                      budget of 128), and prompts under 2c tokens get no pyramid.
    alloc="official_2024_06"  the code released between 2024-06-25 and 2024-09-30, whose step divides by m: the same
                      for most small budgets, more tokens for high layers otherwise. No release says which of the two
                      made the paper's tables.
    alloc="adakv"     AdaKV's released code: official, but short prompts get a pyramid, too.
    alloc="kvpress"   kvpress: each layer's share includes the window. Uniform if the top layer's share would be smaller
                      than the window or larger than the bottom layer's share (a budget above n - window). Compared with
                      kvpress by scripts/compare/kvpress_parity.py.
    """

    beta: Annotated[float, Field(ge=1, allow_inf_nan=False)] = 20
    alloc: Literal["exact", "official", "official_2024_06", "adakv", "kvpress"] = "exact"

    @property
    def overspends(self) -> str:
        rounds = self.alloc in ("official", "official_2024_06", "adakv")
        return "the released allocation rounds its step down" if rounds else ""

    def tokens(self, budget: int, n: int, window: int, num_layers: int) -> list[int]:
        if num_layers == 1:
            return [budget]
        rules: dict[str, Callable[[int, int, int, int], list[int]]] = {
            "exact": self._exact,
            "official": self._official,
            "official_2024_06": partial(self._official, steps=num_layers),
            "adakv": partial(self._official, short_too=True),
            "kvpress": self._kvpress,
        }
        return rules[self.alloc](budget, n, window, num_layers)

    def _ends(self, share: float, least: float, most: int) -> Ends:
        """The shares for a mean of `share`; each layer has at most `most` tokens to select from."""
        top, bottom = least, 2 * share - least
        return Ends(most, 2 * share - most) if bottom >= most else Ends(bottom, top)

    def _exact(self, budget: int, n: int, window: int, m: int) -> list[int]:
        c = budget - window
        bottom, top = self._ends(c, c / self.beta, n - window)
        shares = [bottom - (bottom - top) * layer / (m - 1) for layer in range(m)]
        return [c_l + window for c_l in largest_remainder(shares, m * c)]

    def _official(
        self, budget: int, n: int, window: int, m: int, steps: int | None = None, short_too: bool = False
    ) -> list[int]:
        c = budget - window
        if n < 2 * c and not short_too:
            return [budget] * m
        bottom, top = self._ends(c, int(c // self.beta), n - window)
        step = (bottom - top) // (steps or m - 1)
        return [int(bottom - layer * step + window) for layer in range(m)]

    def _kvpress(self, budget: int, n: int, window: int, m: int) -> list[int]:
        bottom, top = self._ends(budget, budget / self.beta, n - window)
        if not bottom >= top >= window:
            return [budget] * m
        return [round(bottom - (bottom - top) * layer / (m - 1)) for layer in range(m)]
