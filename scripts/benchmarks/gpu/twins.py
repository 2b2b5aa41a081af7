"""Every operator's result beside a reference that is computed apart: in torch, in float32, on the CPU."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

from kvbench.ops.operator import use_kernels

# What a result may differ by, relative to its largest value: rounding of its dtype and of the factors of its products.
ALLOWED = {torch.float64: 1e-4, torch.float32: 1e-4, torch.float16: 5e-3, torch.bfloat16: 3e-2}
# What these write depends on the dtype: codes on the rounded scale, the choice of an entry on entries as stored.
IN_THEIR_DTYPE = {"quantise", "codebook_append", "packed_append", "ring_append", "greedy_covers"}


@dataclass
class Compared:
    """The worst of an operator's calls."""

    calls: int = 0
    difference: float = 0.0  # of floating-point results, relative to the largest value
    over_allowed: float = 0.0  # the same over what is allowed for the dtype
    integers: float = 0.0  # the largest share of a result's integers that differ; none may

    def add(self, a: Tensor, b: Tensor) -> None:
        if a.dtype.is_floating_point:
            gap = difference(a, b)
            self.difference = max(self.difference, gap)
            self.over_allowed = max(self.over_allowed, gap / ALLOWED[a.dtype])
        elif a.shape != b.shape:
            self.integers = 1.0
        elif a.numel():
            self.integers = max(self.integers, float((a != b).double().mean()))


class Twins(TorchFunctionMode):
    """Within this context each operator of kvbench is computed a second time by its reference; `operators` has, by the
    operator's name, how what it returns and writes compares.

    No mode of torch's dispatcher: within one, torch makes no masks without elements (`causal_lower_right`).
    """

    def __init__(self):
        super().__init__()
        self.operators: dict[str, Compared] = {}

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if getattr(func, "namespace", None) != "kvbench":
            return func(*args, **kwargs)
        name = func._schema.name.partition("::")[2]
        copies = tree_map(lambda x: apart(x, name not in IN_THEIR_DTYPE), (args, kwargs))
        with use_kernels("torch"):
            expected = func(*copies[0], **copies[1])
        out = func(*args, **kwargs)
        operator = self.operators.setdefault(name, Compared())
        operator.calls += 1
        pairs = zip(tree_leaves((out, args, kwargs)), tree_leaves((expected, *copies)), strict=True)
        for a, b in pairs:
            if isinstance(a, Tensor):
                operator.add(a.cpu(), b)
        return out


def apart(x: object, single: bool) -> object:
    """A copy of a tensor on the CPU; with `single` numbers in float32."""
    if not isinstance(x, Tensor):
        return x
    return x.detach().to("cpu", torch.float32 if single and x.dtype.is_floating_point else x.dtype, copy=True)


def difference(a: Tensor, b: Tensor) -> float:
    """The largest difference over the largest value. Elements that are NaN or infinite must be so in both."""
    if a.shape != b.shape:
        return float("inf")
    if a.numel() == 0:
        return 0.0
    a, b = a.double(), b.double()
    finite = b.isfinite()
    if not torch.equal(a.isfinite(), finite):
        return float("inf")
    a, b = a[finite], b[finite]
    return float((a - b).abs().max() / b.abs().max().clamp_min(1e-12)) if a.numel() else 0.0
