"""Prefill: one forward pass over a prompt, and the state from which every method and ratio of a run compresses."""

from kvbench.prefill.block_sums import Blocks
from kvbench.prefill.chunked import in_chunks
from kvbench.prefill.evicting import EvictingPrefill
from kvbench.prefill.full import FullPrefill, prefill
from kvbench.prefill.plan import PrefillPlan
from kvbench.prefill.reconstruction import ContextFrame, Reconstruction, Span
from kvbench.prefill.second_pass import reconstruct
from kvbench.prefill.state import LayerState, Needs, PrefillState

__all__ = [
    "Blocks",
    "ContextFrame",
    "EvictingPrefill",
    "FullPrefill",
    "LayerState",
    "Needs",
    "PrefillPlan",
    "PrefillState",
    "Reconstruction",
    "Span",
    "in_chunks",
    "prefill",
    "reconstruct",
]
