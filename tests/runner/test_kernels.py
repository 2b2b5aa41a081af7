"""`kernels=` chooses what computes a run; the manifest says what did, and torch's backend of a prompt's attention."""

import sys
from importlib.metadata import version
from types import ModuleType, SimpleNamespace

import pytest

from kvbench.configuration import configured
from kvbench.errors import UserError
from kvbench.ops import operator
from kvbench.ops.gpu import runs_kernels
from kvbench.records.manifest import read_manifests
from kvbench.records.provenance import provenance
from kvbench.runner import kernels
from kvbench.runner.kernels import check_decoding, check_kernels, computed_by
from tests.support.command import command_line
from tests.support.fake_devices import FakeDevices, forget_gpus
from tests.support.runs import arguments, run
from tests.support.tiny import tiny_model

DENSE = {"sdpa": "flash_attention", "sdpa_decode": "flash_attention"}


@pytest.mark.parametrize("value", ["cuda", "", None, True])
def test_a_choice_that_does_not_exist_is_refused_with_those_that_do(value):
    with pytest.raises(UserError, match=r"kernels.*auto, torch.* triton"):
        configured([]).changed(kernels=value)


def test_triton_without_a_gpu_or_without_triton_is_one_line(monkeypatch, tmp_path, capsys):
    assert command_line("kernels=triton", "model.device=cpu", f"output_dir={tmp_path}") == 2
    error = capsys.readouterr().err
    assert "kernels=triton needs a CUDA GPU, and the model is on cpu" in error and "Traceback" not in error
    monkeypatch.setattr(kernels, "triton_version", lambda: None)
    with pytest.raises(UserError, match="kernels=triton needs triton, which is not installed"):
        check_kernels("triton", "cuda:1")
    check_kernels("torch", "cuda:1")


@pytest.mark.parametrize(
    "found, computes", [("3.5.1", "torch"), ("3.6.0", "triton 3.6.0"), ("3.10.0+git", "triton 3.10.0+git")]
)
def test_a_triton_that_does_not_compile_the_kernels_is_one_line(found, computes, monkeypatch, capsys):
    for module in (kernels, operator):
        monkeypatch.setattr(module, "triton_version", lambda: found)
        monkeypatch.setattr(module, "runs_kernels", lambda device: True)
        monkeypatch.setattr(module, "build_error", lambda device: None)
    for name in ("prompt_backend", "decoding_backend"):
        monkeypatch.setattr(kernels, name, lambda *args: "flash_attention")
    model = tiny_model()
    monkeypatch.setattr(type(model), "device", property(lambda self: kernels.torch.device("cuda:0")))
    assert computed_by(model)["kernels"] == computes
    if computes != "torch":
        assert capsys.readouterr().err == ""
        check_kernels("triton", "cuda:0")
        return
    assert capsys.readouterr().err == "triton 3.5.1 is older than 3.6: torch computes what the Triton kernels would\n"
    with pytest.raises(UserError, match=r"kernels=triton needs triton 3\.6 or later, and 3\.5\.1"):
        check_kernels("triton", "cuda:0")


NO_COMPILER = "Failed to find C compiler. Please specify via CC environment variable"


def no_compiler(device):
    raise RuntimeError(f"{NO_COMPILER}\nor set triton.knobs.build.impl")


def test_a_machine_that_cannot_build_a_kernel_computes_with_torch_or_says_what_it_lacks(monkeypatch, capsys):
    """Slim images and clusters have Triton and no compiler, or no headers of Python."""
    smallest = ModuleType("kvbench.ops.kernels.smallest")
    smallest.run = no_compiler
    monkeypatch.setitem(sys.modules, smallest.__name__, smallest)
    for module in (kernels, operator):
        monkeypatch.setattr(module, "triton_version", lambda: "3.9.0")
    for name in ("prompt_backend", "decoding_backend"):
        monkeypatch.setattr(kernels, name, lambda *args: "flash_attention")
    model = tiny_model()
    monkeypatch.setattr(type(model), "device", property(lambda self: kernels.torch.device("cuda:0")))
    with FakeDevices():
        assert computed_by(model)["kernels"] == "torch"
        (line,) = capsys.readouterr().err.splitlines()
        assert NO_COMPILER in line and "gcc and python3-dev" in line and "torch computes" in line
        with pytest.raises(UserError, match=f"kernels=triton: Triton cannot build.*{NO_COMPILER}.*kernels=torch"):
            check_kernels("triton", "cuda:0")
        with pytest.raises(UserError, match=r"decode\.engine=fused: Triton cannot build"):
            check_decoding("fused", SimpleNamespace(resolve_device=lambda: "cuda:0", device_map=None))
        smallest.run = lambda device: None
        forget_gpus()
        assert computed_by(model)["kernels"] == "triton 3.9.0" and not capsys.readouterr().err


@pytest.mark.parametrize(
    "capability, hip, name, wave, runs",
    [
        ((7, 5), None, "", 32, False),
        ((8, 0), None, "", 32, True),
        ((9, 0), "6.4", "gfx908:sramecc+", 64, False),  # its numbers are no compute capability
        ((9, 0), "6.4", "gfx90a:sramecc+", 64, True),
        ((9, 4), "6.4", "gfx942:sramecc+:xnack-", 64, True),
        ((11, 0), "6.4", "gfx1100", 32, False),
    ],
)
def test_kernels_run_on_the_gpus_for_which_they_compile(capability, hip, name, wave, runs, monkeypatch):
    monkeypatch.setattr(kernels.torch.version, "hip", hip)
    with FakeDevices(capability) as fake:
        fake.properties.gcnArchName, fake.properties.warp_size = name, wave
        assert runs_kernels(kernels.torch.device("cuda:0")) == runs


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("times", [0.5, 1.2, 1.8])
def test_a_dtype_in_which_this_cpu_multiplies_slowly_is_warned_about(times, dtype, monkeypatch, capsys):
    seconds = {kernels.torch.float32: 0.01}
    monkeypatch.setattr(kernels, "product_seconds", lambda dtype: seconds.get(dtype, times * 0.01))
    computed_by(tiny_model().to(getattr(kernels.torch, dtype)))
    slow = times == 1.8 and dtype != "float32"
    expected = f"products of prompts with weights take 1.8 times as long in {dtype} as in float32" if slow else ""
    error = capsys.readouterr().err
    assert error.startswith(expected) and bool(error) == slow


def test_the_time_of_a_product_is_that_of_the_dtype_and_the_least(monkeypatch):
    seen, clock = [], iter([0, 5, 10, 12, 20, 29, 30, 38])
    monkeypatch.setattr(kernels, "linear", lambda *tensors: seen.extend(x.dtype for x in tensors))
    monkeypatch.setattr(kernels.time, "thread_time", lambda: next(clock))
    assert kernels.product_seconds(kernels.torch.bfloat16) == 2
    assert set(seen) == {kernels.torch.bfloat16}


def test_the_math_backend_on_a_gpu_is_warned_about(monkeypatch, capsys):
    model = tiny_model()
    assert computed_by(model) == {"kernels": f"numba {version('numba')}", **DENSE}
    assert capsys.readouterr().err == ""
    for name in ("prompt_backend", "decoding_backend"):
        monkeypatch.setattr(kernels, name, lambda *args: "math")
    monkeypatch.setattr(type(model), "device", property(lambda self: kernels.torch.device("cuda:0")))
    monkeypatch.setattr(kernels, "kernels_on", lambda device: "torch")
    monkeypatch.setattr(kernels, "runs_kernels", lambda device: False)  # asks torch's CUDA builds for a driver
    assert computed_by(model)["sdpa"] == "math"
    assert "float32 with head_dim 8 has only torch's math backend here" in capsys.readouterr().err


@pytest.mark.heavy
def test_a_manifest_says_what_computed_its_records(tiny_folder, tmp_path):
    folder = run(*arguments(tiny_folder, tmp_path, "method=full", "limit=1", "kernels=torch"))
    (manifest,) = read_manifests(folder)[0].values()
    assert (manifest["kernels"], manifest["sdpa"]) == ("torch", "flash_attention")
    assert provenance(manifest)["kernels"] == "torch"
