"""Methods: functions from a prefill state to layer caches. YAML files in conf/method name what is here.

A method of one's own needs no other import: its base classes, the state that it reads and the caches that it returns
are here too.
"""

from kvbench.cache.base import LayerCache
from kvbench.cache.dense import DenseLayer
from kvbench.cache.reserve_ratio import Kept
from kvbench.methods.allocation.base import Allocation
from kvbench.methods.allocation.linear_pyramid import LinearPyramid
from kvbench.methods.allocation.preference import Preference
from kvbench.methods.allocation.pyramid import Pyramid
from kvbench.methods.allocation.score_entropy import ScoreEntropy
from kvbench.methods.allocation.skip_layers import SkipLayers
from kvbench.methods.allocation.uniform import Uniform
from kvbench.methods.allocation.weighted import WeightedAllocation
from kvbench.methods.base import Method
from kvbench.methods.cake import CAKE
from kvbench.methods.chunked_eviction import ChunkedEviction
from kvbench.methods.decode_compression import DecodeCompression
from kvbench.methods.duo_attention import DuoAttention
from kvbench.methods.eviction import Eviction
from kvbench.methods.full import FullKV
from kvbench.methods.h2o import H2O
from kvbench.methods.heads.adakv import AdaKV
from kvbench.methods.heads.base import HeadBudgets
from kvbench.methods.heads.composite import CompositeHeads
from kvbench.methods.heads.equal import EqualHeads
from kvbench.methods.heads.headkv import HeadKV
from kvbench.methods.heads.lava import LAVaHeads
from kvbench.methods.heads.pooled import PooledHeads
from kvbench.methods.heads.whole import WholeHeads
from kvbench.methods.interval_layer import interval_layer
from kvbench.methods.lagkv import LagKV
from kvbench.methods.layer_drop import OnlyLazyLayers, RandomLayers
from kvbench.methods.omnikv import OmniKV
from kvbench.methods.pooling_merge import PoolingMerge
from kvbench.methods.pyramidinfer import PyramidInfer
from kvbench.methods.quest import Quest
from kvbench.methods.rocketkv import RocketKV
from kvbench.methods.score_threshold import ScoreThreshold
from kvbench.methods.scoring.around_context import AroundContext
from kvbench.methods.scoring.base import Scoring
from kvbench.methods.scoring.chunks import Chunks
from kvbench.methods.scoring.column_sums import ColumnSums
from kvbench.methods.scoring.compactor import Compactor
from kvbench.methods.scoring.critical import CriticalKV
from kvbench.methods.scoring.cur import CUR
from kvbench.methods.scoring.expected_attention import ExpectedAttention
from kvbench.methods.scoring.finch import Finch
from kvbench.methods.scoring.key_diff import KeyDiff
from kvbench.methods.scoring.key_norm import KNorm
from kvbench.methods.scoring.kvcompose import KVCompose
from kvbench.methods.scoring.kvzip import KVzip
from kvbench.methods.scoring.last_query import LastQuery
from kvbench.methods.scoring.lava import LAVa
from kvbench.methods.scoring.leverage import LeverageScore
from kvbench.methods.scoring.mean_variance import MeanVariance
from kvbench.methods.scoring.nacl import NACL
from kvbench.methods.scoring.non_causal import NonCausalAttention
from kvbench.methods.scoring.random import Random
from kvbench.methods.scoring.reference_attention import MatchingPursuit, ReferenceAttention
from kvbench.methods.scoring.rkv import RKV
from kvbench.methods.scoring.triattention import TriAttention
from kvbench.methods.scoring.window_attention import WindowAttention
from kvbench.methods.scoring.window_average import WindowAverage
from kvbench.methods.selection import Selection, top_indices, with_window
from kvbench.methods.simlayerkv import SimLayerKV
from kvbench.methods.spindle import SpindleKV
from kvbench.methods.squeeze import SqueezeAttention
from kvbench.methods.storage.base import Storage
from kvbench.methods.storage.block_formats import Ggml, Microscaling
from kvbench.methods.storage.codebook import Codebook
from kvbench.methods.storage.dense import Dense
from kvbench.methods.storage.fp8 import Fp8
from kvbench.methods.storage.gear import GEAR
from kvbench.methods.storage.kivi import Kivi
from kvbench.methods.storage.kvquant import KVQuant
from kvbench.methods.storage.kvtc import KVTC
from kvbench.methods.storage.matched import Matched
from kvbench.methods.storage.minicache import MiniCache
from kvbench.methods.storage.palu import Palu
from kvbench.methods.storage.rerotated import Rerotated
from kvbench.methods.storage.think import ThinK
from kvbench.methods.storage.turboquant import TurboQuant
from kvbench.methods.storage.xkv import XKV
from kvbench.methods.streaming_llm import StreamingLLM
from kvbench.methods.tova import TOVA
from kvbench.ops.attention import dense_attention
from kvbench.prefill import LayerState, Needs, PrefillPlan, PrefillState

__all__ = [
    "CAKE",
    "CUR",
    "GEAR",
    "H2O",
    "KVTC",
    "NACL",
    "RKV",
    "TOVA",
    "XKV",
    "AdaKV",
    "Allocation",
    "AroundContext",
    "ChunkedEviction",
    "Chunks",
    "Codebook",
    "ColumnSums",
    "Compactor",
    "CompositeHeads",
    "CriticalKV",
    "DecodeCompression",
    "Dense",
    "DenseLayer",
    "DuoAttention",
    "EqualHeads",
    "Eviction",
    "ExpectedAttention",
    "Finch",
    "Fp8",
    "FullKV",
    "Ggml",
    "HeadBudgets",
    "HeadKV",
    "KNorm",
    "KVCompose",
    "KVQuant",
    "KVzip",
    "Kept",
    "KeyDiff",
    "Kivi",
    "LAVa",
    "LAVaHeads",
    "LagKV",
    "LastQuery",
    "LayerCache",
    "LayerState",
    "LeverageScore",
    "LinearPyramid",
    "Matched",
    "MatchingPursuit",
    "MeanVariance",
    "Method",
    "Microscaling",
    "MiniCache",
    "Needs",
    "NonCausalAttention",
    "OmniKV",
    "OnlyLazyLayers",
    "Palu",
    "PooledHeads",
    "PoolingMerge",
    "Preference",
    "PrefillPlan",
    "PrefillState",
    "Pyramid",
    "PyramidInfer",
    "Quest",
    "Random",
    "RandomLayers",
    "ReferenceAttention",
    "Rerotated",
    "RocketKV",
    "ScoreEntropy",
    "ScoreThreshold",
    "Scoring",
    "Selection",
    "SimLayerKV",
    "SkipLayers",
    "SpindleKV",
    "SqueezeAttention",
    "Storage",
    "StreamingLLM",
    "ThinK",
    "TriAttention",
    "TurboQuant",
    "Uniform",
    "WeightedAllocation",
    "WholeHeads",
    "WindowAttention",
    "WindowAverage",
    "dense_attention",
    "interval_layer",
    "top_indices",
    "with_window",
]
