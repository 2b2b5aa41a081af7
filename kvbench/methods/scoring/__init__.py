"""Scoring: how important each prompt token is. The files of conf/scoring name these classes."""

from kvbench.methods.scoring.around_context import AroundContext
from kvbench.methods.scoring.base import Scoring
from kvbench.methods.scoring.chunks import Chunks
from kvbench.methods.scoring.column_sums import ColumnSums
from kvbench.methods.scoring.compactor import Compactor
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

__all__ = [
    "CUR",
    "NACL",
    "RKV",
    "AroundContext",
    "Chunks",
    "ColumnSums",
    "Compactor",
    "ExpectedAttention",
    "Finch",
    "KNorm",
    "KVCompose",
    "KVzip",
    "KeyDiff",
    "LAVa",
    "LastQuery",
    "LeverageScore",
    "MatchingPursuit",
    "MeanVariance",
    "NonCausalAttention",
    "Random",
    "ReferenceAttention",
    "Scoring",
    "TriAttention",
    "WindowAttention",
    "WindowAverage",
]
