"""The comparison of gpu_check.py between a GPU and the CPU, of every preset, on a fake GPU."""

from functools import cache

import pytest
import torch

from scripts.benchmarks.gpu import judge, models, presets
from scripts.benchmarks.gpu.rows import Check, fitting, small
from tests.support.config import NAMES
from tests.support.fake_devices import FakeDevices, device_of, place, tensors_in

CHECK = Check(dry_run=True)


@cache
def on_gpu():
    return place(models.llama3_8b("cpu", torch.float32, **models.TRIAL), gpus=1)


@pytest.mark.parametrize("name", NAMES)
def test_a_preset_is_compared_with_itself_on_the_cpu(name, monkeypatch):
    monkeypatch.setattr(presets, "capture_of", lambda engine, model: None)  # a fake GPU records no graph
    one = fitting(CHECK, name)
    with FakeDevices():
        found = presets.preset(one, on_gpu(), small(CHECK, "cpu"), CHECK.tokens)
    assert list(judge.preset(found)) == []
