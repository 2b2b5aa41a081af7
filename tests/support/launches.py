"""What code would make a GPU do: operations, kernels launched and waits, counted on a machine without one.

    with Counting() as counting:
        ...  # on tensors of a fake GPU, see fake_devices
    counting.counts.kernels

operations   calls into torch as the code makes them: `linear` is one, a view is one.
kernels      these without views and allocations, composite functions taken apart (`linear` and
             `scaled_dot_product_attention` are one kernel each); an operator of kvbench counts its `LAUNCHES`.
waits        where the CPU waits for the GPU: a value that is read (item, tolist, int, bool, equal, a copy to the CPU)
             or a size that depends on data (nonzero, a mask as index, unique, repeats given as a tensor).
uploads      blocking copies from the CPU to the GPU, which wait as well: tensors made of Python values, CPU tensors
             or lists as indices.

Some kernels of torch launch several (sort, topk, cumsum, pad): each counts once. The kernels run on the CPU, so nothing
here says how long one takes.
"""

from collections import Counter
from dataclasses import dataclass, field
from functools import cache

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from kvbench.ops.operator import LAUNCHES
from tests.support.fake_devices import CPU, FakeDevices, device_of, tensors_in

aten = torch.ops.aten
ONE_KERNEL = {aten.linear.default, aten.scaled_dot_product_attention.default, aten.layer_norm.default}
NO_KERNEL = {
    "_fused_sdp_choice",
    "empty",
    "empty_like",
    "new_empty",
    "empty_strided",
    "new_empty_strided",
    "_unsafe_view",
    "lift_fresh",
}
READS = {"_local_scalar_dense"}
WAITS = {"equal", "nonzero", "nonzero_numpy", "masked_select", "_unique", "_unique2", "unique_dim", "bincount"}
WAITS |= {"unique_consecutive", "unique_dim_consecutive"}
INDEXING = {"index", "index_put", "index_put_", "_unsafe_index"}


@dataclass
class Counts:
    """Numbers of operations, kernels, waits and uploads; the names of what was counted."""

    operations: float = 0
    kernels: float = 0
    waits: float = 0
    uploads: float = 0
    names: Counter = field(default_factory=Counter)  # kernels, and waits as "wait: name"

    def __sub__(self, other: "Counts") -> "Counts":
        names = Counter({k: v for k in self.names | other.names if (v := self.names[k] - other.names[k])})
        return Counts(*(a - b for a, b in zip(self.numbers(), other.numbers(), strict=True)), names)

    def __truediv__(self, by: float) -> "Counts":
        return Counts(*(a / by for a in self.numbers()), Counter({k: v / by for k, v in self.names.items()}))

    def numbers(self) -> tuple[float, float, float, float]:
        return self.operations, self.kernels, self.waits, self.uploads

    def copy(self) -> "Counts":
        return Counts(*self.numbers(), Counter(self.names))


class Counting(FakeDevices):
    """Fake devices that count what is done on GPUs. The operations on CPU tensors count nothing."""

    def __enter__(self) -> "Counting":
        self.counts = Counts()
        self.dispatched = Dispatched(self.counts)
        self.dispatched.__enter__()
        return super().__enter__()

    def __exit__(self, *error):
        super().__exit__(*error)
        return self.dispatched.__exit__(*error)

    def move(self, tensor: Tensor, *args, **kwargs) -> Tensor:
        targets = [to for to in (*args, kwargs.get("device")) if isinstance(to, str | torch.device)]
        stays = all(torch.device(to) == device_of(tensor) for to in targets)  # else it is a copy, not a kernel
        self.dispatched.on_gpu = stays and device_of(tensor).type == "cuda"
        out = super().move(tensor, *args, **kwargs)
        if device_of(out) != device_of(tensor):
            if device_of(out) == CPU:
                wait(self.counts, "copy to the CPU")
            elif device_of(tensor) == CPU and not kwargs.get("non_blocking"):
                self.counts.uploads += 1
        return out

    def call(self, func, args, kwargs, device: torch.device):
        given = any(device_of(tensor).type == "cuda" for tensor in tensors_in([args, kwargs]))
        self.dispatched.on_gpu = given or device.type == "cuda"
        if func in (torch.tensor, torch.as_tensor, torch.asarray) and device.type == "cuda" and not given:
            self.counts.uploads += 1
            self.dispatched.on_gpu = False  # made on the CPU
        if func in (Tensor.tolist, Tensor.numpy) and given:
            wait(self.counts, func.__name__)
            self.dispatched.on_gpu = False  # one copy, which is counted
        return super().call(func, args, kwargs, device)


class Dispatched(TorchDispatchMode):
    """Counts what torch dispatches while `on_gpu`."""

    def __init__(self, counts: Counts):
        super().__init__()
        self.counts, self.on_gpu, self.depth = counts, False, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if not self.on_gpu:
            return func(*args, **kwargs)
        self.counts.operations += not self.depth
        if composite(func):
            self.depth += 1
            try:
                with self:
                    return func.decompose(*args, **kwargs)
            finally:
                self.depth -= 1
        out = func(*args, **kwargs)
        self.count_one(func, args, kwargs)
        return out

    def count_one(self, func, args, kwargs) -> None:
        name = func._schema.name.partition("::")[2]
        if name in READS or name in WAITS or waits_for_a_size(name, args, kwargs):
            wait(self.counts, name)
        if name in INDEXING:
            self.counts.uploads += sum(i is not None and i.dim() > 0 and device_of(i) == CPU for i in args[1])
        if func.namespace == "kvbench":
            launches = LAUNCHES[name]
        else:
            launches = not (func.is_view or name in NO_KERNEL or name in READS)
        self.counts.kernels += launches
        if launches:
            self.counts.names[name] += launches


@cache
def composite(func) -> bool:
    """Whether an operation is taken apart: torch makes it of others, and it counts as more than one kernel."""
    return func.namespace == "aten" and func not in ONE_KERNEL and func._can_decompose()


def waits_for_a_size(name: str, args, kwargs) -> bool:
    """Whether an operation's arguments make the size of its result, or of a step to it, depend on data."""
    if name == "repeat_interleave":
        return isinstance(args[0], Tensor) and kwargs.get("output_size") is None
    if name not in INDEXING:
        return False
    masks = [index for index in args[1] if index is not None and index.dtype in (torch.bool, torch.uint8)]
    filled = name.startswith("index_put") and args[2].numel() == 1 and len(masks) == 1  # masked_fill does it
    return bool(masks) and not filled


def wait(counts: Counts, what: str) -> None:
    counts.waits += 1
    counts.names[f"wait: {what}"] += 1
