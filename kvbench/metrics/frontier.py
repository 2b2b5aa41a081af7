"""The fewest bytes at which a method keeps a share of FullKV's quality, from paired scores at several ratios."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from kvbench.metrics.bootstrap import OF_SCORES, Interval, paired_interval

CLOSE = 0.05  # no ratio is tried between two settings whose bytes differ by less than this share
STEPS = 4  # a refinement divides the interval between two ratios into this many equal steps of the logarithm


@dataclass(frozen=True)
class Point:
    """One setting of a method: its bytes, and how far its scores are below FullKV's on the same samples."""

    setting: str
    ratio: float  # as requested; 1 where the method takes none
    bytes: float  # mean over samples of the share of FullKV's bytes, as served
    difference: float  # mean of score - FullKV's score
    low: float  # the 95 % interval of that mean
    high: float
    floored: bool = False  # whether the method kept more than the ratio, because of its floor


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
    """A point from shares of FullKV's bytes, scores and FullKV's scores on the same samples; tasks count equally.

    `bounds` are of a sample's score, `bounds_of_full` of FullKV's where they differ. low and high are from a paired
    bootstrap within tasks, which draws samples of one of `contexts` together; nan where a task has a single sample or
    context. Either one alone is wrong in fewer than 5 % of data sets: the ends of a 90 % interval make up for each
    other, and of yes-no scores one of them is wrong in up to 9 %.
    """
    low, high = paired_interval(scores, full, tasks, contexts, bounds, bounds_of_b=bounds_of_full)
    differences = np.subtract(scores, full)
    task_means = [differences[[label == task for label in tasks]].mean() for task in dict.fromkeys(tasks)]
    return Point(setting, ratio, float(np.mean(shares)), float(np.mean(task_means)), low, high, floored)


def as_score(full: float, difference: float) -> float:
    """FullKV's score and a difference from it as a score, within 0 and 1: a bound of a difference may lead beyond."""
    return min(max(full + difference, 0.0), 1.0)  # nan stays nan


@dataclass(frozen=True)
class Frontier:
    """Where one method's quality falls below FullKV's by more than `margin`.

    sure      the point with the fewest bytes such that it and every point with more bytes certainly lose at most the
              margin (lower bound above -margin); None: not even the first.
    possible  the same for points that possibly lose at most the margin (upper bound not below -margin).
    gap       whether a point with fewer bytes than `sure` also certainly loses at most the margin.
    end       whether `sure` is the last point tried: the frontier may be lower.
    """

    points: list[Point]  # by falling bytes; settings at a method's floor that are the same once
    margin: float
    sure: Point | None
    possible: Point | None
    gap: bool
    end: bool


def frontier(points: Sequence[Point], margin: float) -> Frontier:
    """The frontier of one method's points at a margin in units of the score."""
    ordered = _distinct(sorted(points, key=lambda point: (-point.bytes, -point.ratio)))
    passing = [point.low > -margin for point in ordered]
    maybe = [not point.high < -margin for point in ordered]  # nan, an end that is not known, rules nothing out
    sure, possible = _last_of_run(ordered, passing), _last_of_run(ordered, maybe)
    rest = passing[passing.index(False) :] if False in passing else []
    return Frontier(ordered, margin, sure, possible, any(rest), sure is not None and sure is ordered[-1])


def _distinct(points: Sequence[Point]) -> list[Point]:
    """Without the points at a method's floor that repeat an earlier one."""
    seen = set()
    kept = []
    for point in points:
        place = (point.bytes, point.difference)
        if not (point.floored and place in seen):
            kept.append(point)
        seen.add(place)
    return kept


def _last_of_run(ordered: Sequence[Point], passes: Sequence[bool]) -> Point | None:
    """The last point of the run of passing points that begins with the first."""
    run = passes.index(False) if False in passes else len(passes)
    return ordered[run - 1] if run else None


def refined(frontier: Frontier) -> list[float]:
    """The ratios to try next: between `sure` and the point below it; none where these are close.

    FullKV, with all bytes at ratio 1, is above the first point.
    """
    points = frontier.points
    place = -1 if frontier.sure is None else points.index(frontier.sure)
    if place + 1 == len(points):
        return []
    below = points[place + 1]
    ratio, held = (1.0, 1.0) if place < 0 else (points[place].ratio, points[place].bytes)
    if below.floored or held - below.bytes <= CLOSE * held or below.ratio >= ratio:
        return []
    steps = np.geomspace(ratio, below.ratio, STEPS + 1)[1:-1]
    return [round(float(step), 4) for step in steps]


def pareto(points: Sequence[tuple[float, float]]) -> list[int]:
    """The indices of the Pareto-optimal (bytes, score) pairs: fewer bytes and higher scores are better."""
    return [
        i
        for i, (held, score) in enumerate(points)
        if not any(other <= held and better >= score and (other, better) != (held, score) for other, better in points)
    ]
