"""Needle in a Haystack: our own needles, several needles, pass keys, and the published testers."""

from kvbench.benchmarks.niah.kvpress_tester import KVPressNeedle
from kvbench.benchmarks.niah.multi_needle import NeedlesAtOnce, NeedlesOneByOne
from kvbench.benchmarks.niah.passkey import PassKey
from kvbench.benchmarks.niah.published_testers import KamradtNeedle, PyramidKVNeedle
from kvbench.benchmarks.niah.single_needle import NeedleInAHaystack
from kvbench.benchmarks.niah.unfinished_answer import NeedleToComplete

__all__ = [
    "KVPressNeedle",
    "KamradtNeedle",
    "NeedleInAHaystack",
    "NeedleToComplete",
    "NeedlesAtOnce",
    "NeedlesOneByOne",
    "PassKey",
    "PyramidKVNeedle",
]
