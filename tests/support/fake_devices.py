"""Fake GPUs: CPU tensors that report a CUDA device, so that code for one or several GPUs runs on a machine without any.

    model = place(tiny_model(), gpus=2)
    with FakeDevices():
        ...  # prefill, compress, decode: the numbers of the CPU, and an error where a GPU would raise one

Every tensor carries the device it stands for as an attribute; `FakeDevices` intercepts torch's functions, lets them run
on the CPU and gives the result the device of its arguments. It raises

- where one function is given tensors of two devices,
- where an operator of kvbench is called while another device than that of its tensors is the current one, on which
  Triton would launch its kernels,
- where cuDNN may compute the attention of one token.

It says nothing about what a kernel supports, its rounding or its memory.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from unittest.mock import patch

import torch
import torch.nn.functional as F
from accelerate.hooks import AlignDevicesHook, add_hook_to_module
from torch import Tensor, nn
from torch.nn.attention.bias import CausalBias
from torch.overrides import TorchFunctionMode
from transformers import PreTrainedModel

from kvbench.models.cache_argument import NAMES
from kvbench.ops import gpu
from tests.reference.plain_varlen import plain_flash_attention_forward

CPU = torch.device("cpu")
# what a call returns
CUDA = {
    "synchronize": None,
    "reset_peak_memory_stats": None,
    "max_memory_allocated": 0,
    "is_current_stream_capturing": False,
}
INDEXING = {Tensor.__getitem__, Tensor.__setitem__}  # indices may lie on the CPU
# What is asked most often, and has no tensor in its answer.
PLAIN = {Tensor.shape.__get__, Tensor.dtype.__get__, Tensor.dim, Tensor.element_size, Tensor.untyped_storage}
OF_THE_FIRST = {Tensor.copy_, Tensor.__deepcopy__}  # whatever the other arguments are
MOVING = {Tensor.to, Tensor.cpu}
# Called for every operation of a model, so what is looked up again and again has a name here.
FLASH = torch.ops.aten._scaled_dot_product_flash_attention.default
FLASH_OF_SEQUENCES = torch.ops.aten._flash_attention_forward.default
DEVICE, IS_CUDA = Tensor.device.__get__, Tensor.is_cuda.__get__
NESTED = (list, tuple)


def device_of(tensor: Tensor) -> torch.device:
    """The device that a tensor stands for."""
    return getattr(tensor, "fake_device", CPU)


class FakeDevices(TorchFunctionMode):
    """Within this context, tensors report the device that they stand for and devices do not mix.

    capability: of every GPU; flash attention fails before 8.0, as torch's does. processors: its multiprocessors.
    """

    def __init__(self, capability: tuple[int, int] = (9, 0), processors: int = 132):
        super().__init__()
        self.capability = capability
        self.properties = SimpleNamespace(multi_processor_count=processors)

    def __enter__(self):
        known = {"get_device_capability": self.capability, "get_device_properties": self.properties}
        functions = {name: lambda *args, result=result: result for name, result in (CUDA | known).items()}
        forget_gpus()
        self.cuda = patch.multiple(torch.cuda, device=self.on_device, set_device=self.set_device, **functions)
        self.current = 0
        self.cuda.start()
        return super().__enter__()

    @contextmanager
    def on_device(self, device: torch.device) -> Iterator[None]:
        """`torch.cuda.device`: the current device within this context."""
        before, self.current = self.current, torch.device(device).index or 0
        try:
            yield
        finally:
            self.current = before

    def set_device(self, device: torch.device | str) -> None:
        self.current = torch.device(device).index

    def __exit__(self, *error):
        forget_gpus()
        self.cuda.stop()
        return super().__exit__(*error)

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func in PLAIN:
            return func(*args)
        if func == DEVICE:
            return device_of(args[0])
        if func == IS_CUDA:
            return device_of(args[0]).type == "cuda"
        kwargs = dict(kwargs or {})
        if func == Tensor.__iter__:  # its result is no list of tensors yet
            return iter(self.__torch_function__(Tensor.unbind, types, args))
        if func in MOVING:
            return self.move(*args, **(kwargs | ({"device": CPU} if func == Tensor.cpu else {})))
        wanted = kwargs.pop("device", None)
        device = common(func, args, kwargs) if wanted is None else torch.device(wanted)
        if getattr(func, "namespace", None) == "kvbench" and device.type == "cuda" and device.index != self.current:
            raise RuntimeError(f"{func.name()} has tensors on {device} and launches on cuda:{self.current}")
        if func == F.scaled_dot_product_attention and device.type == "cuda":
            planned = torch.backends.cuda.cudnn_sdp_enabled()
            if planned and args[0].shape[-2] == 1:
                raise RuntimeError("cuDNN may compute one token's attention, and would plan it anew for every length")
        return stamped(self.call(func, args, kwargs, device), device)

    def move(self, tensor: Tensor, *args, **kwargs) -> Tensor:
        return moved(tensor, *args, **kwargs)

    def call(self, func, args, kwargs, device: torch.device):
        """What `func` returns; `device` is that of its result."""
        if func == FLASH_OF_SEQUENCES:
            if self.capability < (8, 0):
                raise RuntimeError("FlashAttention only supports Ampere GPUs or newer.")
            return plain_flash_attention_forward(*args, **kwargs)
        return flash(*args, **kwargs) if func == FLASH else func(*args, **kwargs)


def forget_gpus() -> None:
    """What kvbench has found out about GPUs."""
    for fact in (gpu.is_recent, gpu.runs_kernels, gpu.multiprocessors, gpu.build_error):
        fact.cache_clear()


def flash(query: Tensor, keys: Tensor, values: Tensor, dropout: float, causal: bool, debug: bool, scale: float):
    """A GPU's flash attention by that of a CPU: causal means that the last query sees the last key."""
    q, length = query.shape[-2], keys.shape[-2]
    seen = torch.ones(q, length, dtype=torch.bool).tril(length - q) if causal and q < length else None
    call = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    mask = None if seen is None else torch.zeros(q, length, dtype=query.dtype).masked_fill_(~seen, -float("inf"))
    return *call(query, keys, values, dropout, causal and mask is None, attn_mask=mask, scale=scale), None


def moved(tensor: Tensor, *args, device=None, **kwargs) -> Tensor:
    """`tensor.to(…)`: a copy where the device changes."""
    rest = []
    for arg in args:
        if isinstance(arg, Tensor):
            device, kwargs["dtype"] = device_of(arg), arg.dtype
        elif isinstance(arg, str | torch.device):
            device = arg
        else:
            rest.append(arg)
    device = device_of(tensor) if device is None else torch.device(device)
    out = tensor.to(*rest, **kwargs) if isinstance(kwargs.get("dtype", next(iter(rest), None)), torch.dtype) else tensor
    return stamped(out.clone() if out is tensor and device != device_of(tensor) else out, device)


def common(func, args, kwargs) -> torch.device:
    """The one device of a function's tensors. As in torch, numbers on the CPU go with any device."""
    tensors = tensors_in((args, kwargs))
    if func in OF_THE_FIRST:
        return device_of(tensors[0])
    first = tensors[0] if func in INDEXING else None
    devices = set()
    for tensor in tensors:
        device = device_of(tensor)
        if device == CPU and (not tensor.dim() or (func in INDEXING and tensor is not first)):
            continue
        if not isinstance(tensor, CausalBias):  # a mask without elements
            devices.add(device)
    if len(devices) > 1:
        names = ", ".join(sorted(map(str, devices)))
        raise RuntimeError(f"{getattr(func, '__name__', func)} was given tensors of several devices: {names}")
    return devices.pop() if devices else CPU


def tensors_in(value: object) -> list[Tensor]:
    """The tensors in nested lists, tuples and dictionaries, in their order."""
    if isinstance(value, Tensor):
        return [value]
    found: list[Tensor] = []
    if isinstance(value, NESTED):
        collect(value, found)
    elif isinstance(value, dict):
        collect(value.values(), found)
    return found


def collect(values: Iterable, found: list[Tensor]) -> None:
    for part in values:
        if isinstance(part, Tensor):
            found.append(part)
        elif isinstance(part, NESTED):
            collect(part, found)
        elif isinstance(part, dict):
            collect(part.values(), found)


def stamped(result, device: torch.device):
    """`result`, whose tensors stand for `device` from now on."""
    for tensor in tensors_in(result):
        tensor.fake_device = device
    return result


class PlacedHook(AlignDevicesHook):
    """Accelerate's hook, which moves a module's inputs to its device, for weights that lie there already."""

    def init_hook(self, module: nn.Module) -> nn.Module:
        return module


def place(model: PreTrainedModel, gpus: int) -> PreTrainedModel:
    """`model` on one fake GPU, or divided over two as accelerate's `device_map="auto"` does it, see `layer_devices`."""
    if gpus == 1:
        stamp_module(model, "cuda:0")
        return model
    base, first = model.base_model, layer_devices(model, gpus).count("cuda:0")
    parts = {
        "cuda:0": [model.get_input_embeddings(), *base.layers[:first]],
        "cuda:1": [*base.layers[first:], base.norm, base.rotary_emb, model.get_output_embeddings()],
    }
    for device, modules in parts.items():
        for module in modules:
            stamp_module(module, device)
            add_hook_to_module(module, PlacedHook(torch.device(device), skip_keys=[*NAMES]))
    whole = PlacedHook(torch.device("cuda:0"), io_same_device=True, skip_keys=[*NAMES])
    add_hook_to_module(model, whole)
    return model


def layer_devices(model: PreTrainedModel, gpus: int) -> list[str]:
    """The device of each layer. Of two GPUs the first has an odd number, so that pairs of layers are divided too."""
    layers = len(model.base_model.layers)
    first = layers if gpus == 1 else layers // 2 + 1 - layers // 2 % 2
    return ["cuda:0"] * first + ["cuda:1"] * (layers - first)


def stamp_module(module: nn.Module, device: str) -> None:
    stamped([*module.parameters(), *module.buffers()], torch.device(device))
