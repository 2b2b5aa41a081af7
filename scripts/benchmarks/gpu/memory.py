"""What compressed caches ask of the allocator, against the bytes that they count."""

import gc

import torch
from transformers import PreTrainedModel

from kvbench.cache.base import storage_bytes
from kvbench.evaluation.prefill_passes import stored
from kvbench.evaluation.settings import Setting
from scripts.benchmarks.gpu.models import budget_of, prefilled


@torch.inference_mode()
def bytes_of(setting: Setting, model: PreTrainedModel, n: int) -> dict:
    """Bytes that a prompt's caches count, and those that the allocator has been asked for and has given for them: by
    which both shrink when the caches are freed (null on a CPU). It gives up to 1 MiB more than is asked for a tensor
    that reuses a larger block.
    """
    state = prefilled(setting, model, n)
    caches = setting.method.compress(state, budget_of(setting, model, n))
    counted = storage_bytes(stored(caches))
    del state
    if model.device.type != "cuda":
        return {"counted": counted, "requested": None, "allocated": None}
    gc.collect()
    before = taken()
    del caches
    gc.collect()
    requested, allocated = (a - b for a, b in zip(before, taken(), strict=True))
    return {
        "counted": counted,
        "requested": requested,
        "allocated": allocated,
        "over": round(requested / counted, 4),
    }


def taken() -> tuple[int, int]:
    """Bytes that tensors asked for, and that they have."""
    stats = torch.cuda.memory_stats()
    return stats["requested_bytes.all.current"], stats["allocated_bytes.all.current"]
