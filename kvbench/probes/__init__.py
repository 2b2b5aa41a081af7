"""Probes: properties of attention and cache, measured layer by layer during prefill instead of compressing."""

from kvbench.probes.attention import AttentionEntropy, AttentionSparsity
from kvbench.probes.base import Observation, Probe, build_probes
from kvbench.probes.lazy import LazyMass, LazyTokens
from kvbench.probes.maps import AttentionMap
from kvbench.probes.similarity import NearestVector, SimilarPairs

__all__ = [
    "AttentionEntropy",
    "AttentionMap",
    "AttentionSparsity",
    "LazyMass",
    "LazyTokens",
    "NearestVector",
    "Observation",
    "Probe",
    "SimilarPairs",
    "build_probes",
]
