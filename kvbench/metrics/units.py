"""Units that were drawn independently, in the strata (tasks) of a mean, and which strata share some of them."""

from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np


class Units(NamedTuple):
    """The units of a stratum: for each, its label, and the sum and the number of its values."""

    labels: list[str]
    sums: np.ndarray
    counts: np.ndarray

    @property
    def alike(self) -> float:
        """The number of equally large units that tell as much (Kish 1965)."""
        return float(self.counts.sum() ** 2 / (self.counts**2).sum())

    @property
    def usual(self) -> float:
        """The mean size of the units in which values lie: of 50 values about one text and one about another, 49."""
        return float((self.counts**2).sum() / self.counts.sum())


def units_of(values: np.ndarray, labels: Sequence[Hashable]) -> Units:
    names, members = np.unique([str(label) for label in labels], return_inverse=True)
    return Units(names.tolist(), np.bincount(members, weights=values), np.bincount(members))


Members = tuple[tuple[int, ...], ...]  # for each stratum, the numbers of its units


def members_of(strata: Sequence[Units]) -> Members:
    """Units that are numbered in the order in which strata have them, so that alike strata share their weights."""
    numbers: dict[str, int] = {}
    return tuple(tuple(numbers.setdefault(label, len(numbers)) for label in stratum.labels) for stratum in strata)


def groups_of(members: Members) -> list[int]:
    """For each stratum the first one with which it shares units, directly or through others."""
    groups, first = list(range(len(members))), dict[int, int]()
    for i, units in enumerate(members):
        for joined in {groups[first.setdefault(unit, i)] for unit in units}:
            groups = [min(joined, groups[i]) if group in (joined, groups[i]) else group for group in groups]
    return groups


def sizes_of(strata: Sequence[Units]) -> tuple[float, ...]:
    """The effective numbers of the strata's units, of which an interval takes at least two."""
    return tuple(max(stratum.alike, 2.0) for stratum in strata)
