"""Methods: functions from a prefill state to layer caches. YAML files in conf/method name what is here.

A method of one's own needs no other import: its base classes, the state that it reads and the caches that it returns
are here too.
"""

from kvbench.cache.base import LayerCache
from kvbench.cache.dense import DenseLayer
from kvbench.cache.reserve_ratio import Kept
from kvbench.methods.adakv import AdaKV
from kvbench.methods.allocation.base import Allocation
from kvbench.methods.allocation.skip_layers import SkipLayers
from kvbench.methods.allocation.uniform import Uniform
from kvbench.methods.allocation.weighted import WeightedAllocation
from kvbench.methods.attention_matching.scoring import MatchingPursuit, ReferenceAttention
from kvbench.methods.attention_matching.storage import Matched
from kvbench.methods.base.method import Method
from kvbench.methods.cake.allocation import Preference
from kvbench.methods.cake.method import CAKE
from kvbench.methods.cake.scoring import MeanVariance
from kvbench.methods.chunkkv import Chunks
from kvbench.methods.compactor.leverage import LeverageScore
from kvbench.methods.compactor.non_causal import NonCausalAttention
from kvbench.methods.compactor.scoring import Compactor
from kvbench.methods.criticalkv import CriticalKV
from kvbench.methods.curdkv import CUR
from kvbench.methods.duo_attention import DuoAttention
from kvbench.methods.eviction.chunked_eviction import ChunkedEviction
from kvbench.methods.eviction.decode_compression import DecodeCompression
from kvbench.methods.eviction.eviction import Eviction
from kvbench.methods.eviction.interval_layer import interval_layer
from kvbench.methods.expected_attention import ExpectedAttention
from kvbench.methods.finch import Finch
from kvbench.methods.full import FullKV
from kvbench.methods.gear.storage import GEAR
from kvbench.methods.h2o.method import H2O
from kvbench.methods.h2o.scoring import ColumnSums
from kvbench.methods.headkv import HeadKV
from kvbench.methods.heads.base import HeadBudgets
from kvbench.methods.heads.equal import EqualHeads
from kvbench.methods.heads.pooled import PooledHeads
from kvbench.methods.key_rerotation import Rerotated
from kvbench.methods.keydiff import KeyDiff
from kvbench.methods.kivi.storage import Kivi
from kvbench.methods.knorm import KNorm
from kvbench.methods.kvcompose.heads import CompositeHeads
from kvbench.methods.kvcompose.scoring import KVCompose
from kvbench.methods.kvquant.storage import KVQuant
from kvbench.methods.kvtc import KVTC
from kvbench.methods.kvzip.scoring import KVzip
from kvbench.methods.kvzip.whole_heads import WholeHeads
from kvbench.methods.lagkv import LagKV
from kvbench.methods.lava.allocation import ScoreEntropy
from kvbench.methods.lava.heads import LAVaHeads
from kvbench.methods.lava.scoring import LAVa
from kvbench.methods.minicache.storage import MiniCache
from kvbench.methods.nacl import NACL
from kvbench.methods.omnikv import OmniKV
from kvbench.methods.palu import Palu
from kvbench.methods.pooling_merge import PoolingMerge
from kvbench.methods.pyramidinfer import PyramidInfer
from kvbench.methods.pyramidkv import Pyramid
from kvbench.methods.quest import Quest
from kvbench.methods.rkv import RKV
from kvbench.methods.rocketkv.method import RocketKV
from kvbench.methods.score_threshold import ScoreThreshold
from kvbench.methods.scoring.around_context import AroundContext
from kvbench.methods.scoring.base import Scoring
from kvbench.methods.scoring.random import Random
from kvbench.methods.selection import Selection, top_indices, with_window
from kvbench.methods.simlayerkv.layer_drop import OnlyLazyLayers, RandomLayers
from kvbench.methods.simlayerkv.method import SimLayerKV
from kvbench.methods.snapkv import WindowAttention
from kvbench.methods.spindlekv.allocation import LinearPyramid
from kvbench.methods.spindlekv.codebook import Codebook
from kvbench.methods.spindlekv.method import SpindleKV
from kvbench.methods.spindlekv.scoring import WindowAverage
from kvbench.methods.squeezeattention import SqueezeAttention
from kvbench.methods.storage.base import Storage
from kvbench.methods.storage.block_formats import Ggml, Microscaling
from kvbench.methods.storage.dense import Dense
from kvbench.methods.storage.fp8 import Fp8
from kvbench.methods.streaming_llm import StreamingLLM
from kvbench.methods.think.storage import ThinK
from kvbench.methods.tova.method import TOVA
from kvbench.methods.tova.scoring import LastQuery
from kvbench.methods.triattention import TriAttention
from kvbench.methods.turboquant.storage import TurboQuant
from kvbench.methods.xkv import XKV
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
