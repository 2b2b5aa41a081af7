"""Bytes as if the model's numbers had 16 bits: a float32 run counts what a bfloat16 run stores."""

from dataclasses import fields, replace

import pytest
import torch

from kvbench.evaluation.prefill_passes import Compressed, SharedPass
from kvbench.evaluation.settings import Setting
from kvbench.methods import FullKV
from kvbench.prefill import FullPrefill, LayerState, Needs, PrefillState
from tests.support.every_method import LAYERS, N, setting, state
from tests.support.hybrids import FAMILIES, hybrid_model
from tests.support.representatives import by_kind
from tests.support.tiny import prompt


def in_float32(layer: LayerState) -> LayerState:
    """The same numbers in float32, so that a method chooses the same tokens."""
    values = {one.name: getattr(layer, one.name) for one in fields(layer) if one.init}
    wide = {name: x.float() for name, x in values.items() if isinstance(x, torch.Tensor) and x.is_floating_point()}
    return replace(layer, **wide)


def compressed(one: Setting, made: PrefillState) -> Compressed:
    caches = one.method.compress(made, one.budget_at(N, LAYERS))
    element_bytes = made.layers[0].keys.element_size()
    return Compressed(caches, made.logits, made.nbytes, element_bytes, 0, 0, [], 0, None)


@pytest.mark.parametrize("name", by_kind())
def test_a_float32_run_counts_what_a_bfloat16_run_stores(name):
    one = setting(name, 0.3)
    narrow = state(N, torch.bfloat16)
    wide = PrefillState([in_float32(layer) for layer in narrow.layers], narrow.logits)
    first, second = compressed(one, wide), compressed(one, narrow)
    stored = second.stored_bytes(second.caches) / second.full_bytes
    assert second.r_bytes_16(second.caches) == stored
    # the length of an entropy coded stream follows rounding errors
    off = 0 if one.method.least_share(2) else 1e-3
    assert first.r_bytes_16(first.caches) == pytest.approx(stored, rel=off, abs=0)


@pytest.mark.parametrize("family", FAMILIES)
def test_states_and_windows_count_as_a_bfloat16_model_holds_them(family):
    found = []
    for dtype in (torch.float32, torch.bfloat16):
        model = hybrid_model(family).to(dtype)
        found.append(SharedPass(model, prompt(40), FullPrefill(), Needs()).compress(FullKV(), 40))
    wide, narrow = found
    assert wide.full_bytes_16 == narrow.full_bytes == narrow.full_bytes_16
    assert wide.r_bytes_16(wide.caches) == 1
