"""The work of samples, predicted and measured: sums and a spread, to which each finished sample is added."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Cost:
    """The work of one sample under all settings that lack its record: predicted in UNITs, or measured in seconds."""

    prefill: float
    rest: float  # compressing, decoding, scoring
    records: int

    @property
    def total(self) -> float:
        return self.prefill + self.rest

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(self.prefill + other.prefill, self.rest + other.rest, self.records + other.records)

    def __sub__(self, other: "Cost") -> "Cost":
        return Cost(self.prefill - other.prefill, self.rest - other.rest, self.records - other.records)


NOTHING = Cost(0.0, 0.0, 0)


class Finished:
    """Finished samples, as sums: what is asked several times a second does not depend on their number."""

    def __init__(self) -> None:
        self.predicted = self.measured = NOTHING
        self.samples = 0
        self.ratios = 0  # samples with a predicted time, of which the measured one is a multiple
        self._mean = self._squares = 0.0  # of these ratios, by Welford's recurrence

    def add(self, predicted: Cost, measured: Cost) -> None:
        self.samples += 1
        self.predicted += predicted
        self.measured += measured
        if predicted.total:
            self.ratios += 1
            ratio = measured.total / predicted.total
            off = ratio - self._mean
            self._mean += off / self.ratios
            self._squares += off * (ratio - self._mean)

    @property
    def variation(self) -> float:
        """The standard deviation of measured over predicted times, over their mean; of two samples or more."""
        return float((self._squares / (self.ratios - 1)) ** 0.5 / self._mean)
