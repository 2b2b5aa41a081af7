"""Latent attention: the numbers that a model stores of a token for all heads of a layer, and attention over them.

A layer with multi-head latent attention (MLA; DeepSeek-V2, arXiv 2405.04434, section 2.1) computes the keys and values
of all its heads from one latent, kv_lora_rank numbers, and rotates one key of qk_rope_head_dim numbers that the heads
share. transformers stores these two and expands them (`expand_kv`) before it calls an attention function.

The `update` of a `latent` cache layer therefore returns the new tokens' latents unchanged. The attention function gets
them expanded, looks up the layer here, and passes it either

    the expanded keys and values of the new tokens beside their latents, if it reads a prompt: all methods score keys
    and queries of heads; or
    only the latents, if it `absorbs`: the key projection of the heads moves to the queries and the value projection to
    the outputs (section 2.1.2), so that all heads attend to one key, the latent together with the rotated key, and to
    one value, the latent.
"""

import threading
from typing import Any, NamedTuple, Protocol
from weakref import WeakKeyDictionary, ref

import torch
import transformers
from torch import Tensor
from torch.nn import Module

from kvbench.errors import UserError
from kvbench.ops.softmax import Scaling

# The beginning of errors about such a model.
LATENTS = "this model stores latents, from which it computes the keys and values of all heads"


class Latents(NamedTuple):
    """Latents of t tokens. As keys and values of one head, the rotated key is the key and the latent the value."""

    latent: Tensor  # [rows, 1, t, kv_lora_rank], after its norm
    rotated: Tensor  # [rows, 1, t, qk_rope_head_dim], after RoPE


class LatentLayer(Protocol):
    """A cache layer to which a model passes latents."""

    @property
    def absorbs(self) -> bool: ...

    def read_by(self, module: Module) -> None: ...

    def keep_latents(self, latents: Latents) -> None: ...

    def take(self, keys: Tensor, values: Tensor) -> object: ...

    def attend(self, query: Tensor, scaling: Scaling) -> Tensor: ...


class Projections(NamedTuple):
    """The matrices that expand a latent, in the model's dtype."""

    keys: Tensor  # [num_attention_heads, qk_nope_head_dim, kv_lora_rank]
    values: Tensor  # [num_attention_heads, kv_lora_rank, v_head_dim]

    def absorbed(self, query: Tensor) -> Tensor:
        """Query [rows, num_attention_heads, q, qk_nope_head_dim + qk_rope_head_dim] for latents and rotated keys,
        [rows, num_attention_heads, q, kv_lora_rank + qk_rope_head_dim]."""
        plain = self.keys.shape[1]
        return torch.cat([query[..., :plain] @ self.keys, query[..., plain:]], dim=-1)

    def expanded(self, output: Tensor) -> Tensor:
        """Means of latents [rows, num_attention_heads, q, kv_lora_rank] as means of values, [.., v_head_dim]."""
        return output @ self.values


class HandedOver(NamedTuple):
    layer: LatentLayer
    latents: Latents


class _Last(threading.local):
    """The result of a thread's last `update` until its layer attends. The pass itself holds the tensors."""

    layer: LatentLayer | None = None
    latents: "tuple[ref[Tensor], ref[Tensor]] | None" = None


_last = _Last()
_PROJECTIONS: WeakKeyDictionary[Module, Projections] = WeakKeyDictionary()


def hand_over(layer: LatentLayer, latents: Latents) -> Latents:
    """Return the latents of new tokens, which the model expands and passes to attention, and note their `layer`."""
    _last.layer, _last.latents = layer, (ref(latents.latent), ref(latents.rotated))
    return latents


def take_handed_over() -> HandedOver | None:
    """The layer to which latents were just passed, with these; None if there is none, or an error ended its pass."""
    layer, latents = _last.layer, _last.latents
    _last.layer = _last.latents = None
    if layer is None or latents is None:
        return None
    latent, rotated = (reference() for reference in latents)
    return None if latent is None or rotated is None else HandedOver(layer, Latents(latent, rotated))


def attend_expanded(
    module: Module, query: Tensor, layer: LatentLayer, latents: Latents, keys: Tensor, values: Tensor, scaling: Scaling
) -> Tensor:
    """The attention [rows, num_attention_heads, q, v_head_dim] of a layer that got latents of new tokens. Its model has
    expanded them to keys and values [rows, num_attention_heads, t, …].

    Raises UserError if the model's code in this transformers expands latents before it stores them.
    """
    if not hasattr(module, "expand_kv"):
        raise UserError(
            f"{type(module).__name__} of transformers {transformers.__version__} stores keys and values of every head, "
            "where the model is made to store latents for all of them: use a newer release"
        )
    if keys.shape[2] > 1:
        renew_projections(module, latents)
    if not layer.absorbs:
        layer.keep_latents(latents)
        layer.take(keys, values)
        layer.read_by(module)
        return layer.attend(query, scaling)
    projections = projections_of(module, latents)
    layer.take(latents.rotated, latents.latent)
    layer.read_by(module)
    return projections.expanded(layer.attend(projections.absorbed(query), scaling))


def projections_of(module: Any, like: Latents) -> Projections:
    """The projections of an attention module, computed once until they are renewed; `like` has the sizes of latents."""
    if module not in _PROJECTIONS:
        _PROJECTIONS[module] = _expanded_units(module, like)
    return _PROJECTIONS[module]


def renew_projections(module: Any, like: Latents) -> None:
    """Compute known projections of an attention module again, before tokens that it reads at once.

    Its weights, its adapters or its dtype may have changed since the last prompt or turn. New numbers replace the old
    ones in their tensors, since a recorded step (a CUDA graph) reads them at the same addresses.
    """
    if (known := _PROJECTIONS.get(module)) is None:
        return
    renewed = _expanded_units(module, like)
    if (renewed.values.dtype, renewed.values.device) != (known.values.dtype, known.values.device):
        _PROJECTIONS[module] = renewed
        return
    for before, now in zip(known, renewed, strict=True):
        before.copy_(now)


def _expanded_units(module: Any, like: Latents) -> Projections:
    """The projections of an attention module, from the expansion of a unit matrix."""
    rank, rotated = like.latent.shape[-1], like.rotated.shape[-1]
    with torch.inference_mode(False), torch.no_grad():
        units = torch.eye(rank, dtype=like.latent.dtype, device=like.latent.device)
        keys, values = module.expand_kv(units[None, None], units.new_zeros(1, 1, rank, rotated))
        of_latent = keys[0, ..., : keys.shape[-1] - rotated].mT
        return Projections(of_latent.contiguous(), values[0].contiguous())


class OneHead(NamedTuple):
    keys: Tensor  # [rows, 1, len, kv_lora_rank + qk_rope_head_dim]
    values: Tensor  # [rows, 1, len, kv_lora_rank]


def as_one_head(rotated: Tensor, latent: Tensor) -> OneHead:
    """The keys and values of absorbed queries, from stored rotated keys and latents [rows, 1, len, …]."""
    return OneHead(torch.cat([latent, rotated], dim=-1), latent)
