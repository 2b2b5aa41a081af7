"""scripts/results/key_channels.py: formats with and without the means of a key's channels."""

from dataclasses import replace

import pandas as pd
import pytest
import torch

from kvbench.methods import FullKV, Ggml
from scripts.results.key_channels import channels, in_ways, means, moved, table
from tests.support.paths import ROOT
from tests.support.tiny import random_state

FOLDER = ROOT / "results" / "formats" / "key_channels"
PLAIN, CENTRED, VALUES = range(3)


def state(offset: float):
    """Random layers of which one channel of all keys is moved by `offset`."""
    made = random_state(2, n=200, kv_heads=2, heads=4, head_dim=32, observed=False)
    bias = torch.zeros(32)
    bias[5] = offset
    return replace(made, layers=[replace(layer, keys=layer.keys + bias) for layer in made.layers])


def furthest(ways, of) -> list[float]:
    return [max(moved(way, of)) for way in ways]


def test_a_large_channel_breaks_a_format_with_one_scale_for_several_and_its_mean_mends_it():
    small, large = (furthest(in_ways(of, FullKV(Ggml("q4_0", "q4_0"))), of) for of in (state(0), state(100)))
    assert small[PLAIN] < 0.1 and large[PLAIN] > 0.3
    assert large[CENTRED] == pytest.approx(small[CENTRED], abs=0.02)
    assert small[VALUES] == large[VALUES] == 0


def test_means_change_no_attention_of_exact_keys():
    of = state(10)
    centred = in_ways(of, FullKV(Ggml("q8_0", "q8_0")))[CENTRED]
    assert max(moved(centred, of)) < 0.01


def test_channels_say_how_far_the_largest_is_from_the_median_and_what_means_make_up():
    quiet, loud = channels(state(0)), channels(state(100))
    assert [(row["layer"], row["head"]) for row in loud] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert all(row["spread"] < 2 and row["means"] < 0.1 for row in quiet)
    assert all(row["spread"] > 50 and row["means"] > 0.9 for row in loud)
    assert all(abs(float(mean[:, 0, 5].mean()) - 100) < 1 for mean in means(state(100)))


def test_the_table_is_made_of_the_rows_beside_it():
    answers, keys = (pd.read_csv(FOLDER / name) for name in ("answers.csv", "channels.csv"))
    assert table(answers, keys).markdown() == (FOLDER / "key_channels.md").read_text("utf-8")
    assert table(answers.assign(digits=0.0), keys).markdown() != (FOLDER / "key_channels.md").read_text("utf-8")
