"""Search for the budget at which a compressed cache has a requested ratio."""

import math
from collections.abc import Callable

# The search gives up after this many tries: a ratio that moves in steps may have no value within the tolerance. Half of
# the tries halve the interval, which is then less than a millionth of its initial size.
MOST_TRIES = 48
# Tries after which every other try halves the interval, because power laws converge slowly. If all of these tries are
# on one side of the target, the next try is the end of the interval on the other side.
PATIENCE = 6
# The ratio grows about as budget^EXPONENT; the estimate after one try.
EXPONENT = 0.65


def find_budget(
    ratio_at: Callable[[float], float], target: float, low: float, high: float, guess: float, tolerance: float
) -> float:
    """The x in [low, high] whose ratio_at(x) is within `tolerance` (relative) of target; otherwise the nearest tried x.

    ratio_at is positive, grows with x and is expensive. Each try is the x at which a power law through the two nearest
    tries meets the target.
    """
    tries: dict[float, float] = {}  # x → ratio
    x = min(max(guess, low), high)
    while (
        len(tries) < MOST_TRIES and x not in tries
    ):  # x in tries: an end of the interval is not enough, or no x is left between two tries
        tries[x] = ratio_at(x)
        if abs(tries[x] - target) <= tolerance * target:
            break
        x = min(max(_next(tries, target), low), high)
    return min(tries, key=lambda t: (abs(tries[t] - target), t))


def _next(tries: dict[float, float], target: float) -> float:
    below = sorted(x for x in tries if tries[x] < target)[-2:]
    above = sorted(x for x in tries if tries[x] >= target)[:2]
    if below and above:
        middle = (below[-1] + above[0]) / 2
        if len(tries) >= PATIENCE and len(tries) % 2:
            return middle
        x = _power_law(tries, below[-1], above[0], target)
        return x if below[-1] < x < above[0] else middle
    if len(tries) >= PATIENCE:
        return 0.0 if above else math.inf  # the caller clamps it to the interval's end
    nearest = below[::-1] or above  # the nearest first
    if len(nearest) == 1:
        return nearest[0] * math.pow(target / tries[nearest[0]], 1 / EXPONENT)
    return _power_law(tries, nearest[1], nearest[0], target)


def _power_law(tries: dict[float, float], a: float, b: float, target: float) -> float:
    """The x at which the power law through the tries at a and b reaches the target. Its exponent is bounded."""
    exponent = math.log(tries[b] / tries[a]) / math.log(b / a)
    return b * (target / tries[b]) ** (1 / min(max(exponent, 0.2), 5.0))
