"""Every operator's kernel beside its torch reference, on the arguments that the presets call it with."""

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from kvbench.ops.operator import kernels_on, use_kernels


class Twins(TorchDispatchMode):
    """Within this context each operator of kvbench runs twice, on copies of its arguments; `worst` has, by its name,
    the largest difference of what it returns and writes, relative to the largest value."""

    def __init__(self):
        super().__init__()
        self.worst: dict[str, float] = {}
        self.calls: dict[str, int] = {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func.namespace != "kvbench":
            return func(*args, **kwargs)
        copies = tree_map(lambda x: x.clone() if isinstance(x, Tensor) else x, (args, kwargs))
        with use_kernels("torch"):
            expected = func(*copies[0], **copies[1])
        out = func(*args, **kwargs)
        pairs = zip(tree_leaves((out, args, kwargs)), tree_leaves((expected, *copies)), strict=True)
        gaps = [difference(a, b) for a, b in pairs if isinstance(a, Tensor)]
        name = func._schema.name.partition("::")[2]
        self.worst[name] = max([self.worst.get(name, 0.0), *gaps])
        self.calls[name] = self.calls.get(name, 0) + 1
        return out


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


def compared(twins: Twins, device: torch.device) -> dict:
    """What was compared; on a device without kernels both sides are the reference."""
    return {
        "kernels": kernels_on(device),
        "operators": {
            name: {"calls": twins.calls[name], "difference": twins.worst[name]} for name in sorted(twins.calls)
        },
    }
