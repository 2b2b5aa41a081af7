"""Operators run their reference on a CPU, appear once to a dispatch counter, and know their launches."""

import sys
from types import ModuleType
from typing import NamedTuple

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from kvbench.methods.spindlekv.ops.greedy_cover import greedy_covers
from kvbench.ops import operator as operators
from kvbench.ops.operator import LAUNCHES, implementation, operator, use_kernels
from kvbench.ops.signature import Signature, Varying
from kvbench.ops.softmax import Scaling


class Pair(NamedTuple):
    left: Tensor
    right: Tensor | None
    by: Varying


class Sums(NamedTuple):
    low: Tensor
    high: Tensor


@operator(launches=1, fake=lambda x: x.new_empty(x.shape))
def _test_double(x: Tensor) -> Tensor:
    return x + x


@operator(launches=2, mutates=("x", "pair.left"))
def _test_add(x: Tensor, pair: Pair, by: int = 3) -> None:
    x.add_(by)
    pair.left.add_(pair.by)


@operator(launches=1, fake=lambda x: Sums(x.new_empty(x.shape), x.new_empty(x.shape)))
def _test_both(x: Tensor) -> Sums:
    return Sums(x + 0, x + 1)


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
        doubled = _test_double(x)
    assert doubled.equal(x + x)
    assert counted.names.count("kvbench::_test_double") == 1
    assert not any("add" in name for name in counted.names)
    assert LAUNCHES["_test_double"] == 1


def test_an_operator_may_write_its_argument_in_inference_mode():
    with torch.inference_mode():
        x, pair = torch.zeros(2), Pair(torch.zeros(1), None, 5)
        _test_add(x, pair)
        with Counted() as counted:
            _test_add(x, pair, 4)
    assert x.tolist() == [7, 7] and pair.left.tolist() == [10]
    assert "kvbench::_test_add" in counted.names


def test_several_results_have_their_names_however_the_operator_is_called():
    with Counted() as counted:
        found = _test_both(torch.zeros(1))
    assert isinstance(found, Sums) and found.high.item() == 1 and "kvbench::_test_both" in counted.names


def test_a_kernel_is_looked_for_beside_the_reference(monkeypatch):
    gpu = torch.device("cuda", 0)
    kernels = ModuleType("tests.ops.kernels"), ModuleType("tests.ops.kernels._test_double")
    kernels[1]._test_double = lambda x: x + 1
    for module in kernels:
        monkeypatch.setitem(sys.modules, module.__name__, module)
    reference = _test_double.__wrapped__
    with use_kernels("triton"):
        assert implementation(reference, gpu) is kernels[1]._test_double
    with use_kernels("torch"):
        assert implementation(reference, gpu) is reference
    assert implementation(reference, torch.device("cpu")) is reference


def test_a_loop_that_numba_compiles_runs_on_a_cpu_where_it_is_installed(monkeypatch):
    reference, cpu = greedy_covers.__wrapped__, torch.device("cpu")
    assert implementation(reference, cpu).__module__ == "kvbench.methods.spindlekv.ops.compiled.greedy_covers"
    with use_kernels("torch"):
        assert implementation(reference, cpu) is reference
    monkeypatch.setattr(operators, "installed", lambda package: False)
    assert implementation(reference, cpu) is reference


def test_a_schema_is_that_of_the_annotations():
    def reference(query: Tensor, pair: Pair, bits: int, mask: Tensor | None, scaling: Scaling) -> Sums: ...

    signature = Signature(reference, mutates=("query", "pair.left"))
    assert signature.schema == (
        "reference(Tensor(a0!) query, Tensor(a1!) pair_left, Tensor? pair_right, SymInt pair_by, int bits, "
        "Tensor? mask, float scaling) -> (Tensor, Tensor)"
    )
    x = torch.zeros(1)
    args = [x, Pair(x, None, 2), 4, None, 0.5]
    assert signature.flat(args) == [x, x, None, 2, 4, None, 0.5] and signature.grouped(signature.flat(args)) == args


def test_what_a_declaration_forgets_is_an_error_that_names_it():
    def unknown(x: list[int]) -> None: ...
    def returns(x: Tensor) -> Tensor: ...

    with pytest.raises(TypeError, match="operator unknown: x must be a tensor, a number or a named tuple"):
        operator(launches=1)(unknown)
    with pytest.raises(TypeError, match="operator returns returns a result: it needs a `fake`"):
        operator(launches=1)(returns)
    with pytest.raises(TypeError, match="operator returns has no parameter z"):
        operator(launches=1, fake=returns, mutates=("z.left",))(returns)


def test_operators_compute_on_every_device_that_torch_knows():
    """A device without kernels of its own, as Apple's and Intel's GPUs, computes the references."""
    for name in LAUNCHES:
        for key in ("CPU", "CUDA", "MPS", "XPU", "HPU", "PrivateUse1"):
            assert torch._C._dispatch_has_computed_kernel_for_dispatch_key(f"kvbench::{name}", key), (name, key)
