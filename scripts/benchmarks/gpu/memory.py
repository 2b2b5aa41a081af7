"""The allocator's bytes of compressed caches against the bytes that they count."""

import gc

import torch
from transformers import PreTrainedModel

from kvbench.cache.base import storage_bytes
from kvbench.evaluation.prefill_passes import stored
from kvbench.evaluation.settings import Setting
from scripts.benchmarks.gpu.models import budget_of, prefilled


@torch.inference_mode()
def bytes_of(one: Setting, model: PreTrainedModel, n: int) -> dict:
    """Bytes that a prompt's caches count, and by which the allocator shrinks when they are freed (null on a CPU)."""
    state = prefilled(one, model, n)
    caches = one.method.compress(state, budget_of(one, model, n))
    counted = storage_bytes(stored(caches))
    del state
    if model.device.type != "cuda":
        return {"counted": counted, "allocated": None}
    gc.collect()
    before = torch.cuda.memory_allocated()
    del caches
    gc.collect()
    allocated = before - torch.cuda.memory_allocated()
    return {"counted": counted, "allocated": allocated, "over": round(allocated / counted, 4)}
