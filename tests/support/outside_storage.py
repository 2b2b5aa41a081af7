"""A storage from outside, of the file beside this one, under one of kvbench's scores."""

from dataclasses import dataclass, field

from rounded_values import RoundedValues

from kvbench.methods import Eviction, KNorm, Scoring, Storage


@dataclass
class KNormRounded(Eviction):
    scoring: Scoring = field(default_factory=KNorm)
    storage: Storage = field(default_factory=RoundedValues)
