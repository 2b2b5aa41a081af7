"""Operators run their reference on a CPU, appear once to a dispatch counter, and know their launches."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from kvbench.ops import operator as operators
from kvbench.ops.operator import LAUNCHES, implementation, operator, use_kernels


@operator("_test_double(Tensor x) -> Tensor", launches=1)
def double(x):
    return x + x


@operator("_test_add_one(Tensor(a!) x, int by) -> ()", launches=2)
def add_one(x, by):
    x.add_(by)


class Counted(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(func.name())
        return func(*args, **(kwargs or {}))


def test_an_operator_is_its_reference_on_a_cpu_and_one_entry_for_a_dispatch_counter():
    x = torch.arange(3.0)
    with Counted() as counted:
        doubled = double(x)
    assert doubled.equal(x + x)
    assert counted.names.count("kvbench::_test_double") == 1
    assert not any("add" in name for name in counted.names)
    assert LAUNCHES["_test_double"] == 1


def test_an_operator_may_write_its_argument_in_inference_mode():
    with torch.inference_mode():
        x = torch.zeros(2)
        add_one(x, 3)
    assert x.tolist() == [3, 3]


def test_the_choice_decides_what_computes_an_operator(monkeypatch):
    def reference(x):
        return x

    cpu, gpu = torch.device("cpu"), torch.device("cuda", 0)
    assert implementation("packed", reference, cpu) is reference  # there is no compiled one of that name
    compiled = implementation("quantised_attention", reference, cpu)
    assert compiled.__module__ == "kvbench.ops.compiled.quantised_attention"
    with use_kernels("torch"):
        assert implementation("packed", reference, gpu) is reference
        assert implementation("quantised_attention", reference, cpu) is reference
    monkeypatch.setattr(operators, "installed", lambda package: False)
    assert implementation("quantised_attention", reference, cpu) is reference


def test_operators_compute_on_every_device_that_torch_knows():
    """A device without kernels of its own, as Apple's and Intel's GPUs, computes the references."""
    for name in LAUNCHES:
        for key in ("CPU", "CUDA", "MPS", "XPU", "HPU", "PrivateUse1"):
            assert torch._C._dispatch_has_computed_kernel_for_dispatch_key(f"kvbench::{name}", key), (name, key)
