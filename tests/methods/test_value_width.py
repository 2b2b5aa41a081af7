"""Values of another width than keys (MiMo-V2-Flash): as if zeros stood behind them up to the width of keys."""

from dataclasses import replace
from functools import cache

import pytest
import torch

from kvbench.cache.paged import PagedLayer
from kvbench.cache.reserve_ratio import Kept
from kvbench.errors import UserError
from kvbench.ops.rope import Rope
from kvbench.prefill import PrefillState, Reconstruction
from tests.support.config import NAMES
from tests.support.every_method import HEADS, LAYERS, PRUNED, N, observed, setting
from tests.support.representatives import by_kind
from tests.support.tiny import random_state, tiny_model

KEYS, VALUES, STEPS = 64, 32, 3


@cache
def states() -> tuple[PrefillState, PrefillState]:
    """Layers of narrow values, and the same ones with zeros behind them."""
    made = random_state(LAYERS, n=N, head_dim=KEYS, window=32, rope=Rope.from_model(tiny_model(head_dim=KEYS)))
    for layer in made.layers:
        scores = layer.reconstruction
        layer.reconstruction = dict.fromkeys(observed().reconstructions, scores[Reconstruction()]) | scores
        layer.values[..., VALUES:] = 0
    narrow = [replace(layer, values=layer.values[..., :VALUES].clone()) for layer in made.layers]
    return PrefillState(narrow, made.logits), made


def attended(name: str, at: int) -> torch.Tensor:
    """What further tokens get from a preset's caches, the channels of values alone."""
    state, one = states()[at], setting(name)
    caches = one.method.compress(state, one.budget_at(N, LAYERS))
    generator, out = torch.Generator().manual_seed(7), []
    for _ in range(STEPS):
        for layer in caches:
            query, key, value = (torch.randn(1, heads, 1, KEYS, generator=generator) for heads in (HEADS, 2, 2))
            value[..., VALUES:] = 0
            layer.update(key, value[..., : state.layers[0].values.shape[2]].contiguous())
            out.append(layer.attend(query, KEYS**-0.5)[..., :VALUES])
    return torch.stack(out)


@cache
def exact() -> torch.Tensor:
    return attended("full", 1)


@pytest.mark.parametrize("name", by_kind(name for name in NAMES if name not in PRUNED))
def test_values_narrower_than_keys_are_kept_as_padded_ones_or_refused_in_one_line(name):
    """Some methods look at all channels of a value together, zeros among them: these may then keep something else, and
    are as far from FullKV as over padded values."""
    padded = attended(name, 1)
    try:
        narrow = attended(name, 0)
    except UserError as error:
        assert "\n" not in str(error) and "values as wide as keys" in str(error)
        return
    assert narrow.shape == padded.shape
    if not torch.allclose(narrow, padded, atol=1e-5, rtol=1e-4):
        errors = [float((x - exact()).norm()) for x in (narrow, padded)]
        assert errors[0] <= 2 * errors[1]


def test_a_page_is_parted_where_its_values_begin():
    generator = torch.Generator().manual_seed(0)
    keys, values = (torch.randn(2, 40, width, generator=generator) for width in (16, 8))
    kept = Kept(40, 80, 80)
    narrow = PagedLayer(keys, values, 8, 3, 2, True, 40, kept)
    padded = PagedLayer(keys, torch.cat([values, torch.zeros_like(values)], dim=2), 8, 3, 2, True, 40, kept)
    query = torch.randn(1, 4, 1, 16, generator=generator)
    torch.testing.assert_close(narrow.attend(query, 0.25), padded.attend(query, 0.25)[..., :8])
