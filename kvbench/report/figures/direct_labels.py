"""Names beside lines, in their colours, instead of a legend."""

from collections.abc import Sequence
from statistics import mean
from typing import Any, NamedTuple

from matplotlib.axes import Axes

_NAME = 0.052  # height of a name, of the panel's
_PATCH = {"facecolor": "white", "edgecolor": "none", "pad": 0.8}  # a name stays legible on a line at its height
_LEADER: dict[str, Any] = {"arrowstyle": "-", "linewidth": 0.6, "alpha": 0.4, "shrinkA": 0, "shrinkB": 3}


class Named(NamedTuple):
    """A point of a line, and the line's name and colour."""

    x: float
    y: float
    name: str
    colour: str


def name_lines(axis: Axes, labels: Sequence[Named], x: float, right: bool = False) -> None:
    """A name at `x` left (or right) of all points, each at another height, with a thin line to its point."""
    side, edge = ("left", 0.0) if right else ("right", 1.0)
    ordered = sorted(labels, key=lambda label: label.y)
    for label, level in zip(ordered, levels([label.y for label in ordered], axis.get_ylim()), strict=True):
        style: dict[str, Any] = {"ha": side, "va": "center", "fontsize": 7, "color": label.colour, "bbox": _PATCH}
        leader = _LEADER | {"color": label.colour, "relpos": (edge, 0.5)}
        axis.annotate(label.name, (label.x, label.y), (x, level), arrowprops=leader, annotation_clip=False, **style)


def levels(heights: Sequence[float], limits: tuple[float, float]) -> list[float]:
    """Levels for names at these increasing heights: at least _NAME of the panel apart, else as near as can be."""
    if not heights:
        return []
    bottom, top = limits
    step = min(_NAME, 1 / len(heights)) * (top - bottom)
    pools: list[list[float]] = []  # names next to each other: their shift is the mean of their single shifts
    for i, height in enumerate(heights):
        pools.append([height - i * step])
        while len(pools) > 1 and mean(pools[-2]) > mean(pools[-1]):
            pools[-2:] = [pools[-2] + pools[-1]]
    free = [mean(pool) for pool in pools for _ in pool]
    most = top - step / 2 - (len(heights) - 1) * step
    return [min(max(shift, bottom + step / 2), most) + i * step for i, shift in enumerate(free)]
