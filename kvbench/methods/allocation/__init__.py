"""Allocation: how many tokens each layer keeps. The files of conf/allocation name these classes."""

from kvbench.methods.allocation.base import Allocation, largest_remainder
from kvbench.methods.allocation.linear_pyramid import LinearPyramid
from kvbench.methods.allocation.preference import Preference
from kvbench.methods.allocation.pyramid import Pyramid
from kvbench.methods.allocation.score_entropy import ScoreEntropy
from kvbench.methods.allocation.skip_layers import SkipLayers
from kvbench.methods.allocation.uniform import Uniform

__all__ = [
    "Allocation",
    "LinearPyramid",
    "Preference",
    "Pyramid",
    "ScoreEntropy",
    "SkipLayers",
    "Uniform",
    "largest_remainder",
]
