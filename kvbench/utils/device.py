"""Devices: synchronisation, peak memory, free memory."""

import torch
from transformers import PreTrainedModel

from kvbench.utils.host import free_memory


def gpus(model: PreTrainedModel) -> set[torch.device]:
    """The GPUs that hold parameters of the model."""
    return {parameter.device for parameter in model.parameters() if parameter.device.type == "cuda"}


def offloaded(model: PreTrainedModel) -> list[str]:
    """The modules whose weights accelerate copies to a GPU for every pass, from the CPU's memory or from the disk."""
    places: dict[str, object] = getattr(model, "hf_device_map", None) or {}
    if not any(isinstance(place, int) or str(place).startswith("cuda") for place in places.values()):
        return []  # all of the model computes on the CPU
    return [name for name, place in places.items() if str(place) in ("cpu", "disk")]


def wait_for(model: PreTrainedModel) -> None:
    """Synchronise the model's GPUs, so that a measured time covers the work and not only its launch."""
    for device in gpus(model):
        finish(device)


def finish(device: torch.device) -> None:
    """Synchronise a GPU; nothing to do on a CPU."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def reset_device_peak(model: PreTrainedModel) -> None:
    """Start a new measurement of `device_peak`."""
    for device in gpus(model):
        torch.cuda.reset_peak_memory_stats(device)


def device_peak(model: PreTrainedModel) -> int | None:
    """Peak bytes of torch's allocator on the model's GPUs since the last reset; None on a CPU."""
    return sum(map(torch.cuda.max_memory_allocated, gpus(model))) or None


def free_bytes(device: str) -> int:
    """Memory of a device that new tensors can take, in bytes; on a GPU this includes unused memory that torch holds."""
    gpu = torch.device(device)
    if gpu.type != "cuda":
        return free_memory()
    unused = torch.cuda.memory_reserved(gpu) - torch.cuda.memory_allocated(gpu)
    return torch.cuda.mem_get_info(gpu)[0] + unused
