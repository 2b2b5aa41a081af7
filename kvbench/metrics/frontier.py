"""The fewest bytes at which a method keeps a share of FullKV's quality, from paired scores at several ratios."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from kvbench.metrics.bootstrap import OF_SCORES, Interval, paired_interval

CLOSE = 0.05  # bytes of two settings that differ by less than this share are not told apart further
STEPS = 4  # a refinement divides the way between two ratios into so many equal steps of their logarithm
CONFIDENCE = 0.95  # of each one-sided bound
TWO_SIDED = 2 * CONFIDENCE - 1  # of an interval with such bounds


@dataclass(frozen=True)
class Point:
    """One setting of a method: its bytes, and how much its scores fall short of FullKV's on the same samples."""

    setting: str
    ratio: float  # as it was requested; 1 where the method takes none
    bytes: float  # mean over samples of the share of FullKV's bytes, as served
    difference: float  # mean of score - FullKV's score
    low: float  # bounds of that mean, each with CONFIDENCE on its side
    high: float
    floored: bool = False  # the method could not go down to the ratio


def point(
    setting: str,
    ratio: float,
    shares: Sequence[float],
    scores: Sequence[float],
    full: Sequence[float],
    tasks: Sequence[Hashable],
    floored: bool = False,
    contexts: Sequence[Hashable] | None = None,
    bounds: Interval = OF_SCORES,
    bounds_of_full: Interval | None = None,
) -> Point:
    """A point from shares of FullKV's bytes, scores and FullKV's scores of the same samples, whose tasks count equally.

    `bounds` are those of a sample's score, `bounds_of_full` of FullKV's where it has others. low and high are those of
    a paired bootstrap within tasks, which draws samples about one of `contexts` together; nan where a task has a single
    sample or context.
    """
    low, high = paired_interval(scores, full, tasks, contexts, bounds, TWO_SIDED, bounds_of_b=bounds_of_full)
    differences = np.subtract(scores, full)
    of_tasks = [differences[[label == task for label in tasks]].mean() for task in dict.fromkeys(tasks)]
    return Point(setting, ratio, float(np.mean(shares)), float(np.mean(of_tasks)), low, high, floored)


@dataclass(frozen=True)
class Frontier:
    """Where one method's quality falls below FullKV's by more than `margin`.

    sure      the point with the fewest bytes such that it and every point with more bytes certainly lose no more than
              the margin (lower bound above -margin); None: not even the first.
    possible  the same for points that may lose no more (upper bound not below -margin).
    gap       some point with fewer bytes than `sure` also certainly loses no more: quality does not fall steadily.
    end       sure is the last point tried: the frontier may lie lower.
    """

    points: list[Point]  # the largest bytes first
    margin: float
    sure: Point | None
    possible: Point | None
    gap: bool
    end: bool


def frontier(points: Sequence[Point], margin: float) -> Frontier:
    """The frontier of one method's points at a margin in units of the score."""
    ordered = sorted(points, key=lambda each: (-each.bytes, -each.ratio))
    passing = [each.low > -margin for each in ordered]
    maybe = [each.high >= -margin for each in ordered]
    sure, possible = _last_of_run(ordered, passing), _last_of_run(ordered, maybe)
    behind = passing[passing.index(False) :] if False in passing else []
    return Frontier(ordered, margin, sure, possible, any(behind), sure is not None and sure is ordered[-1])


def _last_of_run(ordered: Sequence[Point], passes: Sequence[bool]) -> Point | None:
    """The last point of those that pass without a gap from the first."""
    run = passes.index(False) if False in passes else len(passes)
    return ordered[run - 1] if run else None


def refined(found: Frontier) -> list[float]:
    """The ratios to try next: between the last point of `sure`'s run and the one below it; none where these are close.

    FullKV, with all bytes at ratio 1, stands above the first point.
    """
    place = -1 if found.sure is None else found.points.index(found.sure)
    if place + 1 == len(found.points):
        return []
    below = found.points[place + 1]
    ratio, held = (1.0, 1.0) if place < 0 else (found.points[place].ratio, found.points[place].bytes)
    if below.floored or held - below.bytes <= CLOSE * held or below.ratio >= ratio:
        return []
    steps = np.geomspace(ratio, below.ratio, STEPS + 1)[1:-1]
    return [round(float(step), 4) for step in steps]


def pareto(points: Sequence[tuple[float, float]]) -> list[int]:
    """The indices of the (bytes, score) pairs that no other pair beats in one and equals or beats in the other."""
    return [
        i
        for i, (held, score) in enumerate(points)
        if not any(other <= held and better >= score and (other, better) != (held, score) for other, better in points)
    ]
