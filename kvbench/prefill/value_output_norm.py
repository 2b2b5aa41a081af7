"""The norms of projected values, which each value adds to the residual stream (CriticalKV, KVzip+)."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from kvbench.errors import UserError
from kvbench.ops.norms import float32_norm
from kvbench.ops.rope import decoder_layers

TILE = 4096  # (query head, token) pairs whose projections exist at a time: [TILE, hidden_size]


def output_projections(model: PreTrainedModel, places: Sequence[int]) -> list[Tensor]:
    """The weights of the output projections [hidden_size, num_attention_heads · head_dim] of the layers at `places`.

    Raises UserError for a model whose decoder layers have no `self_attn.o_proj` with a floating-point weight.
    """
    layers = decoder_layers(model)
    modules = [getattr(getattr(layers[at], "self_attn", None), "o_proj", None) for at in places if at < len(layers)]
    stored = [getattr(module, "weight", None) for module in modules]
    if not stored or not all(isinstance(x, Tensor) and x.is_floating_point() and not x.is_meta for x in stored):
        raise UserError(
            f"{type(model).__name__} has no layers with the weight of an output projection, which norms of projected "
            "values need"
        )
    return [effective_weight(module) for module in modules if module is not None]


def effective_weight(module: Any) -> Tensor:
    """The weight [out, in] of a linear module: the stored one, or what it makes of unit vectors if it has more than
    this to project with, as adapters do (LoRA)."""
    weight: Tensor = module.weight
    if {name for name, _ in module.named_parameters()} <= {"weight", "bias"}:
        return weight
    with torch.no_grad():
        # as one sequence, since peft's adapter_names has an adapter for each
        units = torch.eye(weight.shape[1], dtype=weight.dtype, device=weight.device)[None]
        added = module(torch.zeros_like(units[:, :1]))  # the bias
        return (module(units) - added)[0].T.contiguous()


def value_output_norm(values: Tensor, weight: Tensor, order: int = 1) -> Tensor:
    """‖v_j W_h‖, L1 or of another order, of every token j and query head h: float32 [num_attention_heads, n].

    values [num_key_value_heads, n, head_dim]; weight [hidden_size, num_attention_heads · head_dim]; W_h is the head's
    part of it. Projected in the model's dtype, in tiles of tokens, and summed in float32.
    """
    heads, _, head_dim = values.shape
    parts = weight.detach().T.unflatten(0, (heads, -1, head_dim))  # [num_key_value_heads, group, head_dim, hidden_size]
    step = max(TILE // (heads * parts.shape[1]), 1)
    norms = [float32_norm(tile[:, None] @ parts, order) for tile in values.split(step, dim=1)]
    return torch.cat(norms, dim=-1).flatten(0, 1)
