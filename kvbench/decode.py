"""Greedy generation from compressed layer caches."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import Cache, PreTrainedModel

from kvbench.cache.base import LayerCache


@dataclass(frozen=True)
class Generation:
    tokens: list[int]  # without the end-of-sequence token
    steps: int  # forward passes after prefill
    seconds: float  # for these steps


@torch.inference_mode()
def generate(
    model: PreTrainedModel,
    caches: Sequence[LayerCache],
    first_logits: Tensor,
    max_new_tokens: int,
    stop_tokens: frozenset[int],
) -> Generation:
    """Greedy tokens after a prompt that `caches` hold; the first comes from the prefill's last logits.

    Positions continue at the number of tokens *seen*, whatever each layer stored.
    """
    cache = Cache(layers=list(caches))
    token = first_logits.argmax().view(1, 1)
    tokens: list[int] = []
    started = time.perf_counter()
    steps = 0
    while (value := token.item()) not in stop_tokens:
        tokens.append(value)
        if len(tokens) == max_new_tokens:
            break
        token = model(input_ids=token, past_key_values=cache, use_cache=True).logits[:, -1].argmax(-1)[None]
        steps += 1
    return Generation(tokens, steps, time.perf_counter() - started)
