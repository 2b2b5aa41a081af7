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
    at_least_one: bool = False,
) -> Generation:
    """Greedy tokens after a prompt that `caches` hold; the first comes from the last logits of what was read.

    Positions continue at the number of tokens *seen*, whatever each layer stored. With `at_least_one` the
    first token is the likeliest that does not stop.
    """
    cache = Cache(layers=list(caches))
    if at_least_one:
        first_logits = first_logits.clone()
        first_logits[list(stop_tokens)] = float("-inf")
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


@torch.inference_mode()
def read(model: PreTrainedModel, caches: Sequence[LayerCache], ids: Tensor) -> Tensor:
    """Let the model read ids [q] through caches that hold what came before; the last logits [vocab_size].

    In one pass where every cache takes a block of tokens; else one by one, as decoded tokens come.
    """
    cache = Cache(layers=list(caches))
    step = len(ids) if all(layer.takes_blocks for layer in caches) else 1
    for block in ids.to(model.device)[None].split(step, dim=1):
        out = model(input_ids=block, past_key_values=cache, use_cache=True, logits_to_keep=1)
    return out.logits[0, -1]
