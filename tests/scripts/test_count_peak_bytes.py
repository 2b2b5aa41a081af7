"""Peak bytes, counted on tensors without memory: against what real tensors hold, and the committed counts."""

import json

import pytest
import torch

from kvbench.configuration.conf import composed
from kvbench.evaluation.settings import build_settings
from scripts.benchmarks.count_peak_bytes import METHODS, fake_gpu, llama, peak
from tests.support.paths import ROOT

N, LAYERS = 2048, 2
TOKEN = 2 * 8 * 128 * 2 * LAYERS  # K and V, eight KV heads of 128 channels, 16 bits


def counted(methods, chunk=None):
    settings = build_settings(composed([f"method=[{','.join(methods)}]"])["method"], [0.25], None, None)
    return peak(N, settings, chunk, LAYERS)


def test_a_storage_counts_once_and_until_its_last_view_is_gone():
    with fake_gpu() as live:
        x = torch.empty(10, dtype=torch.float32, device="cuda")
        assert x.is_cuda and x.device == torch.device("cuda:0") and live.bytes == 40
        part = x[2:4]
        del x
        assert live.bytes == 40
        y = part + 1
        assert (live.bytes, live.peak) == (48, 48) and y.shape == (2,)
        del part
        assert (live.bytes, live.peak) == (8, 48)


def test_weights_prompt_and_caches_are_what_is_held():
    found = counted(["full", "snapkv"])
    weights, stages = found["weight_bytes"], found["stages"]
    assert weights == pytest.approx(sum(x.nbytes for x in llama(LAYERS).parameters()), abs=1000)  # and RoPE's table
    caches = weights + TOKEN * N * 5 // 4  # FullKV's lie in the prompt's
    assert caches <= stages["compressing with snapkv 0.25"] < caches + 50e6
    # a layer of FullKV's is packed at a time, and the prompt's is free afterwards
    assert caches < stages["decoding 2 settings"] < caches + 2 * TOKEN // LAYERS * N + 10e6


def test_every_method_of_the_count_runs_in_chunks_too():
    found = counted(METHODS, chunk=1024)
    assert {"decoding spindle 0.25", "decoding kivi", "decoding 3 settings"} <= {*found["stages"]}
    assert found["peak_bytes"] == max(found["stages"].values()) == found["stages"][found["at"]]


def test_seven_settings_at_three_ratios_take_at_most_60_gb_at_128k_tokens():
    """And more before settings that decode alone came first."""
    now, before = (
        json.loads((ROOT / f"results/benchmarks/{name}.json").read_text())["prompts"]
        for name in ("peak_bytes", "peak_bytes_before")
    )
    assert list(now) == list(before) == ["8192", "32768", "131072"]
    assert now["131072"]["peak_bytes"] < 60e9 < before["131072"]["peak_bytes"]
    assert all(now[n]["peak_bytes"] < before[n]["peak_bytes"] for n in now)
