"""Methods: functions from a prefill state to layer caches. YAML files in conf/method name what is here."""

from kvbench.methods.allocation import Pyramid, Uniform
from kvbench.methods.base import Method
from kvbench.methods.codebook import Codebook
from kvbench.methods.eviction import Eviction
from kvbench.methods.full import FullKV
from kvbench.methods.h2o import H2O
from kvbench.methods.kivi import Kivi
from kvbench.methods.layer_drop import OnlyLazyLayers, RandomLayers
from kvbench.methods.minicache import MiniCache
from kvbench.methods.pooling_merge import PoolingMerge
from kvbench.methods.pyramidinfer import PyramidInfer
from kvbench.methods.scoring import ColumnSums, Scoring, WindowAttention
from kvbench.methods.simlayerkv import SimLayerKV
from kvbench.methods.spindle import LinearPyramid, SpindleKV, WindowAverage
from kvbench.methods.squeeze import SqueezeAttention
from kvbench.methods.storage import Dense, Storage
from kvbench.methods.streaming_llm import StreamingLLM

__all__ = [
    "H2O",
    "Codebook",
    "ColumnSums",
    "Dense",
    "Eviction",
    "FullKV",
    "Kivi",
    "LinearPyramid",
    "Method",
    "MiniCache",
    "OnlyLazyLayers",
    "PoolingMerge",
    "Pyramid",
    "PyramidInfer",
    "RandomLayers",
    "Scoring",
    "SimLayerKV",
    "SpindleKV",
    "SqueezeAttention",
    "Storage",
    "StreamingLLM",
    "Uniform",
    "WindowAttention",
    "WindowAverage",
]
