"""Benchmarks: sources of samples and scores. The YAML files in conf/benchmark name these classes."""

from kvbench.benchmarks.babilong import BABILong
from kvbench.benchmarks.base import Benchmark, Sample, Sampling, Turn
from kvbench.benchmarks.infinitebench import InfiniteBench
from kvbench.benchmarks.instructions import Instructions
from kvbench.benchmarks.longbench import LongBench, LongBenchE
from kvbench.benchmarks.longbench_v2 import LongBenchV2
from kvbench.benchmarks.math_problems import MathProblems
from kvbench.benchmarks.niah import NeedleInAHaystack
from kvbench.benchmarks.nolima import NoLiMa
from kvbench.benchmarks.own_prompts import OwnPrompts
from kvbench.benchmarks.ruler import Ruler
from kvbench.benchmarks.scbench import SCBench
from kvbench.benchmarks.speed import Speed
from kvbench.benchmarks.text import Text

__all__ = [
    "BABILong",
    "Benchmark",
    "InfiniteBench",
    "Instructions",
    "LongBench",
    "LongBenchE",
    "LongBenchV2",
    "MathProblems",
    "NeedleInAHaystack",
    "NoLiMa",
    "OwnPrompts",
    "Ruler",
    "SCBench",
    "Sample",
    "Sampling",
    "Speed",
    "Text",
    "Turn",
]
