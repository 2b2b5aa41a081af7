"""What gpu_check.py compares of every preset between a GPU and the CPU, and what it times, on a fake GPU."""

from contextlib import nullcontext
from functools import cache

import pytest
import torch

from scripts.benchmarks.gpu import judge, long_prompts, models, presets, speed
from scripts.benchmarks.gpu.rows import Check, fitting, small
from scripts.benchmarks.gpu.stages import Clock
from tests.support.fake_devices import FakeDevices, place
from tests.support.representatives import CACHES

CHECK = Check(dry_run=True)


@cache
def on_gpu():
    return place(models.sharpened(models.llama3_8b("cpu", torch.float32, **models.TRIAL)), gpus=1)


@pytest.fixture(autouse=True)
def eager(monkeypatch):
    monkeypatch.setattr(presets, "recording_of", lambda engine, model: None)  # a fake GPU records no graph


def found(name: str) -> dict:
    with FakeDevices():
        return presets.preset(fitting(CHECK, name), on_gpu(), small(CHECK, "cpu"), CHECK.tokens)


@pytest.mark.heavy
@pytest.mark.parametrize(
    "name",
    ["ada_criticalkv_snapkv", "only_lazy_layers", "snapkv_nvfp4"]
    + [pytest.param(name, marks=pytest.mark.slow) for name in ("gear_2", "kvquant_3")],
)
def test_a_preset_runs_on_both_devices_and_is_right_where_they_compute_the_same(name):
    one = found(name)
    assert list(judge.preset(one)) == []
    assert one["prompts"] == 1 and one["outputs"] == 0


@pytest.mark.parametrize("name", CACHES[::8])
def test_operators_of_a_preset_are_compared_on_a_gpu(name):
    with FakeDevices():
        one = presets.operators(fitting(CHECK, name), on_gpu(), CHECK.tokens)
        there = presets.operators(fitting(CHECK, name), small(CHECK, "cpu"), CHECK.tokens)
    assert list(judge.compared(one)) == []
    assert one.keys() == there.keys()


def test_attention_over_many_tokens_is_compared_on_a_gpu(monkeypatch):
    monkeypatch.setattr(long_prompts, "use_kernels", lambda kernels: nullcontext())  # Triton's are not for a fake GPU
    with FakeDevices():
        assert list(judge.compared(long_prompts.compared(700, "cuda:0"))) == []


def test_every_part_of_a_table_of_speeds_is_there(monkeypatch):
    for name, value in {"recording_of": None, "free_bytes": 2**30}.items():
        monkeypatch.setattr(speed, name, lambda *_, value=value: value)
    monkeypatch.setattr(speed.Length, "kernel_seconds", lambda self, work: None)
    with FakeDevices():
        table = speed.Length(on_gpu(), 300, 128, 9, Clock(5)).table()
    parts = table["settings"] | {name: table[name] for name in ("batch", "generate", "column_sums")}
    assert [name for name, part in parts.items() if "error" in part] == []
    assert set(table["settings"]) == set(speed.SETTINGS) - {"h2o"}


def test_another_prompt_is_tried_where_one_is_decided_by_rounding(monkeypatch):
    attempts = Attempts([False, True])
    monkeypatch.setattr(presets, "of_prompt", attempts)
    one = found("snapkv")
    assert one["prompts"] == 2 and one["kept_equal"] and attempts.seeds == [0, 1]


def test_what_differs_with_every_prompt_fails(monkeypatch):
    monkeypatch.setattr(presets, "of_prompt", Attempts([False, False, False, True]))
    one = found("snapkv")
    assert one["prompts"] == presets.PROMPTS
    assert list(judge.preset(one)) == ["other tokens are kept than on the CPU"]


@torch.inference_mode()
@pytest.mark.parametrize("name, sensitive", [("kvquant_3", True), ("snapkv", False), ("kivi", False)])
def test_rounding_alone_changes_much_only_where_levels_are_fitted_to_the_prompt(name, sensitive):
    one, model = fitting(CHECK, name), small(CHECK, "cpu")
    state = models.prefilled(one, model, CHECK.tokens)
    share = presets.by_rounding(one, state, models.budget_of(one, model, CHECK.tokens))
    assert (share > presets.OUTPUTS) is sensitive


def test_one_key_of_another_token_is_more_than_is_allowed():
    """Of one head in one layer, the key that the query attends to most."""
    one, model = fitting(CHECK, "snapkv"), small(CHECK, "cpu")
    state = models.prefilled(one, model, CHECK.tokens)
    caches = one.method.compress(state, models.budget_of(one, model, CHECK.tokens))
    good = presets.seen(caches, state)
    assert presets.compared(good, presets.seen(caches, state))["outputs"] == 0
    gaps = []
    for key in caches[0].k.view[0, 0]:
        before = key.clone()
        key.zero_()
        gaps.append(presets.compared(good, presets.seen(caches, state))["outputs"])
        key.copy_(before)
    assert max(gaps) > 10 * presets.OUTPUTS


class Attempts:
    """The first `presets.of_prompt`, whose kept sets are equal or not, one attempt after the other."""

    def __init__(self, equal: list[bool]):
        self.equal, self.seeds, self.real, self.made = iter(equal), [], presets.of_prompt, None

    def __call__(self, *arguments) -> dict:
        self.seeds.append(arguments[-1])
        if self.made is None:
            self.made = self.real(*arguments)
        return self.made | {"kept_equal": next(self.equal)}
