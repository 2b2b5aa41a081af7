"""What torch's Inductor generates for a GPU, on a machine without one: the code is made, and the CPU computes the step.

    made = GpuCode()
    fused = with_compiled_layers(model, backend=made)
    ...  # steps on a CPU
    made.kernels()  # of each compilation

The graph is traced on CPU tensors as torch.compile does it, and lowered with its inputs on a fake H100. Triton is not
needed: its kernels are written, not compiled. Steps run the traced graph, operation by operation.
"""

import copy
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from types import SimpleNamespace
from unittest.mock import patch

import torch
from torch import Tensor, fx
from torch._dynamo.device_interface import CudaInterface
from torch._functorch.aot_autograd import make_boxed_func
from torch._inductor import config, scheduler
from torch._inductor.compile_fx import compile_fx, compile_fx_inner
from torch._inductor.exc import InductorError
from torch._inductor.fx_passes import joint_graph
from torch._inductor.graph import GraphLowering
from torch._inductor.runtime.hints import DeviceProperties
from torch.utils import _triton

from kvbench.evaluation.fused_layers import OPTIONS
from kvbench.ops.operator import LAUNCHES

GPU = torch.device("cuda", 0)
H100 = SimpleNamespace(
    name="H100",
    major=9,
    minor=0,
    multi_processor_count=132,
    regs_per_multiprocessor=65536,
    max_threads_per_multi_processor=2048,
    max_threads_per_block=1024,
    shared_memory_per_block=48 << 10,
    shared_memory_per_block_optin=227 << 10,
    shared_memory_per_multiprocessor=228 << 10,
    L2_cache_size=50 << 20,
    warp_size=32,
    total_memory=80 << 30,
)
INTERFACE = {
    "is_available": True,
    "device_count": 1,
    "current_device": 0,
    "get_device_properties": H100,
    "get_compute_capability": 90,
    "is_bf16_supported": True,
    "is_triton_capable": True,
    "raise_if_triton_unavailable": None,
}
CUDA = {"device_count": 1, "current_device": 0, "get_device_properties": H100, "get_device_capability": (9, 0)}
# A launch in the code: a Triton kernel, one of cuBLAS, or an operator of torch or kvbench.
LAUNCH = re.compile(r"(?P<triton>triton_\w+)\.run\(|extern_kernels\.(?P<extern>\w+)\(|torch\.ops\.(?P<op>\w+\.\w+)\.")


class Made(Exception):
    """Inductor's code is there."""


class GpuCode:
    """A backend of `torch.compile`. `sources`: the Python code of each compilation, with the text of its kernels."""

    def __init__(self, **options: bool):
        self.sources: list[str] = []
        self.options = OPTIONS | options

    def __call__(self, graph: fx.GraphModule, inputs: list[Tensor]):
        return compile_fx(graph, inputs, inner_compile=self.lower, config_patches=self.options)

    def lower(self, graph: fx.GraphModule, inputs: list[Tensor], **options):
        moved = copy.deepcopy(graph)
        for node in moved.graph.nodes:
            if node.kwargs.get("device") is not None:
                node.kwargs = {**node.kwargs, "device": GPU}
        with fake_gpu():
            try:
                compile_fx_inner(moved, [on_gpu(value) for value in inputs], **options)
            except InductorError as error:
                if not isinstance(error.inner_exception, Made):
                    raise
                self.sources.append(str(error.inner_exception))
        return make_boxed_func(graph)

    def kernels(self) -> list[Counter]:
        """The kernels that each compilation launches, by name: see `launches`."""
        return [launches(source) for source in self.sources]


def launches(source: str) -> Counter:
    """Kernels that Inductor's code launches: a matrix product is one, an operator of kvbench its `LAUNCHES`."""
    body = source.partition("def call(self, args):")[2].partition("\nrunner = ")[0]
    found: Counter = Counter()
    for line in body.splitlines():
        for match in () if "assert_" in line else LAUNCH.finditer(line):
            name = match["triton"] or match["extern"] or match["op"]
            found[name] += LAUNCHES[name.removeprefix("kvbench.")] if name.startswith("kvbench.") else 1
    return found


def on_gpu(value):
    """A fake tensor like this one on the fake GPU; numbers stay."""
    if not isinstance(value, Tensor) or not value.dim():
        return value
    with value.fake_mode:
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=GPU)


@contextmanager
def fake_gpu() -> Iterator[None]:
    """Within this context Inductor finds an H100."""

    def made(lowering: GraphLowering) -> None:
        raise Made(lowering.codegen()[0].value)

    joint_graph.lazy_init(torch.device("cpu"))  # on a GPU it would draw random numbers there
    cached = (DeviceProperties.create, scheduler.has_triton)
    with ExitStack() as patches:
        for target, values in ((CudaInterface, INTERFACE), (CudaInterface.Worker, INTERFACE), (torch.cuda, CUDA)):
            for name in values.keys() & set(dir(target)):
                given = staticmethod(partial(always, values[name]))
                patches.enter_context(patch.object(target, name, given if isinstance(target, type) else given.__func__))
        for target, name, value in (
            (joint_graph, "lazy_init", lambda *args: None),
            (scheduler, "has_triton", lambda: True),
            (_triton, "triton_hash_with_backend", lambda: "none"),
            (GraphLowering, "compile_to_module", made),
        ):
            patches.enter_context(patch.object(target, name, value))
        patches.enter_context(config.patch(force_disable_caches=True))
        try:
            yield
        finally:
            for function in cached:
                getattr(function, "cache_clear", lambda: None)()


def always(value: object, *args: object, **kwargs: object) -> object:
    return value
