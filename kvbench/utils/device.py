"""What kvbench asks of a device: to finish, how much memory it has used, how much is free."""

import psutil
import torch
from transformers import PreTrainedModel


def gpus(model: PreTrainedModel) -> set[torch.device]:
    return {parameter.device for parameter in model.parameters() if parameter.device.type == "cuda"}


def wait_for(model: PreTrainedModel) -> None:
    """Let the GPUs finish what was launched, so that a time means the work and not its launch."""
    for device in gpus(model):
        finish(device)


def finish(device: torch.device) -> None:
    """Let a GPU finish what was launched on it; a CPU has."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def reset_device_peak(model: PreTrainedModel) -> None:
    for device in gpus(model):
        torch.cuda.reset_peak_memory_stats(device)


def device_peak(model: PreTrainedModel) -> int | None:
    """The most bytes that torch's allocator has had on the model's GPUs since the last reset; None on a CPU."""
    return sum(map(torch.cuda.max_memory_allocated, gpus(model))) or None


def free_bytes(device: str) -> int:
    """Memory that is free on a device."""
    if torch.device(device).type == "cuda":
        return torch.cuda.mem_get_info(torch.device(device))[0]
    return psutil.virtual_memory().available
