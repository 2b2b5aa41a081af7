"""Prefill: one forward pass over a prompt, and the state that it leaves for every method and ratio of a run."""

from kvbench.prefill.full import FullPrefill, prefill
from kvbench.prefill.plan import PrefillPlan
from kvbench.prefill.state import LayerState, Needs, PrefillState

__all__ = ["FullPrefill", "LayerState", "Needs", "PrefillPlan", "PrefillState", "prefill"]
