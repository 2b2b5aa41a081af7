"""Meeting a measured ratio: the search for the eviction that, with all else a method does, comes to it."""

from collections.abc import Callable

# The search ends here at the latest: a ratio that moves in steps may have none within the tolerance.
MOST_TRIES = 24
# Proportional steps go this much too far, twice as much each time, to come to the target's other side soon.
OVERSHOOT = 1.2


def find_budget(
    ratio_at: Callable[[float], float], target: float, low: float, high: float, guess: float, tolerance: float
) -> float:
    """The x in [low, high] whose ratio_at(x) is within `tolerance` (relative) of target, or else the nearest tried.

    ratio_at grows with x, about in proportion, and is dear. So proportional steps go from `guess` until the
    target lies between two tries; then the straight line between them and halving take turns.
    """
    tries: dict[float, float] = {}  # x → ratio - target
    x = min(max(guess, low), high)
    for turn in range(MOST_TRIES):
        if x in tries:
            break  # an end that is still not enough, or nothing left between two tries
        miss = tries[x] = ratio_at(x) - target
        if abs(miss) <= tolerance * target:
            break
        below = max((t for t in tries if tries[t] < 0), default=None)
        above = min((t for t in tries if tries[t] >= 0), default=None)
        if below is None or above is None:
            step = x * target / (miss + target) - x
            x = min(max(x + OVERSHOOT * 2**turn * step, low), high)
        elif turn % 2:
            x = (below + above) / 2
        else:
            x = below - tries[below] * (above - below) / (tries[above] - tries[below])
    return min(tries, key=lambda t: (abs(tries[t]), t))
