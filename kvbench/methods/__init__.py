"""Methods: functions from a prefill state to layer caches. YAML files in conf/method name what is here."""

from kvbench.methods.allocation import Pyramid, Uniform
from kvbench.methods.base import Method
from kvbench.methods.codebook import Codebook
from kvbench.methods.eviction import Eviction
from kvbench.methods.full import FullKV
from kvbench.methods.h2o import H2O
from kvbench.methods.scoring import ColumnSums, Scoring, WindowAttention
from kvbench.methods.spindle import LinearPyramid, SpindleKV, WindowAverage
from kvbench.methods.storage import Dense, Storage
from kvbench.methods.streaming_llm import StreamingLLM

__all__ = [
    "H2O",
    "Codebook",
    "ColumnSums",
    "Dense",
    "Eviction",
    "FullKV",
    "LinearPyramid",
    "Method",
    "Pyramid",
    "Scoring",
    "SpindleKV",
    "Storage",
    "StreamingLLM",
    "Uniform",
    "WindowAttention",
    "WindowAverage",
]
