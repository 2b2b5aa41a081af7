"""scripts/results/key_channels.py: formats with and without the means of a key's channels."""

from dataclasses import replace

import pandas as pd
import pytest
import torch

from kvbench.evaluation.decode import batched
from kvbench.methods import FullKV, Ggml
from scripts.results.key_channels import centring, channels, less, means, moved, restored, table
from tests.support.paths import ROOT
from tests.support.tiny import random_state

FOLDER = ROOT / "results" / "formats" / "key_channels"
Q4_0 = FullKV(Ggml("q4_0", "q4_0"))


def state(offset: float):
    """Random layers of which one channel of all keys is moved by `offset`."""
    made = random_state(2, n=200, kv_heads=2, heads=4, head_dim=32, observed=False)
    bias = torch.zeros(32)
    bias[5] = offset
    return replace(made, layers=[replace(layer, keys=layer.keys + bias) for layer in made.layers])


def furthest(of, method=Q4_0) -> tuple[float, float]:
    """How far the format moves attention with the keys as they are, and less their means."""
    offsets = means(of)
    plain = [restored(cache) for cache in method.compress(of, of.n)]
    stored = method.compress(less(of, offsets), of.n)
    centred = [restored(cache, offset) for cache, offset in zip(stored, offsets, strict=True)]
    return max(moved(plain, of)), max(moved(centred, of))


def test_a_large_channel_breaks_a_format_with_one_scale_for_several_and_its_mean_mends_it():
    small, large = furthest(state(0)), furthest(state(100))
    assert small[0] < 0.1 and large[0] > 0.3
    assert large[1] == pytest.approx(small[1], abs=0.02)


def test_means_change_no_attention_of_exact_keys():
    of, exact = state(10), FullKV()
    offsets = means(of)
    keys = [
        cache.k.view[0] + offset for cache, offset in zip(exact.compress(less(of, offsets), 200), offsets, strict=True)
    ]
    assert max(moved(keys, of)) < 1e-5


def test_decoded_keys_are_stored_less_the_same_means_and_attend_as_before():
    of = state(10)
    offsets, new = means(of), torch.randn(1, 2, 1, 32, generator=torch.Generator().manual_seed(1)) + 10
    query = torch.randn(1, 4, 1, 32, generator=torch.Generator().manual_seed(2))
    plain = batched([FullKV().compress(of, of.n)])
    centred = centring(batched([FullKV().compress(less(of, offsets), of.n)]), offsets)
    outputs = []
    for cache in (plain, centred):
        cache.layers[1].take(new, new)
        outputs.append(cache.layers[1].attend(query, of.layers[1].scaling))
    assert torch.allclose(*outputs, atol=1e-5)
    kept = [cache.layers[1].rows[0].k.view[0][:, -1] for cache in (plain, centred)]
    assert torch.allclose(kept[0] - offsets[1][:, 0], kept[1])


def test_channels_say_how_far_the_largest_is_from_the_median_and_what_means_make_up():
    quiet, loud = channels(state(0)), channels(state(100))
    assert [(row["layer"], row["head"]) for row in loud] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert all(row["spread"] < 2 and row["means"] < 0.1 for row in quiet)
    assert all(row["spread"] > 50 and row["means"] > 0.9 for row in loud)


def test_the_table_is_made_of_the_rows_beside_it():
    answers, keys = (pd.read_csv(FOLDER / name) for name in ("answers.csv", "channels.csv"))
    assert table(answers, keys).markdown() == (FOLDER / "key_channels.md").read_text("utf-8")
    assert table(answers.assign(digits=0.0), keys).markdown() != (FOLDER / "key_channels.md").read_text("utf-8")
