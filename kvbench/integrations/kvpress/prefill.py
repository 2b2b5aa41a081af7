"""A prefill under a press of kvpress: the model's own forward pass, its cache compressed by kvpress's hooks."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import DynamicCache, PreTrainedModel

from kvbench.cache.base import storage_bytes
from kvbench.errors import UserError
from kvbench.integrations.kvpress.presses import build_press, complaints, rerotates
from kvbench.models.attention_interface import ATTENTION
from kvbench.models.cache_argument import as_argument
from kvbench.models.layer_kinds import kinds_of
from kvbench.prefill import LayerState, Needs, PrefillPlan, PrefillState
from kvbench.prefill.state import Release


@dataclass(frozen=True)
class PressedPrefill(PrefillPlan):
    """A pass under one press with its arguments."""

    press: str  # a class of kvpress
    arguments: str  # as canonical JSON
    attention: str  # transformers' attention implementation during the pass
    compression_ratio: float | None  # share of the tokens to remove; None: the press takes no ratio

    def run(
        self, model: PreTrainedModel, input_ids: Tensor, needs: Needs, release: Release | None = None
    ) -> PrefillState:
        """Presses compress while the pass runs, so `needs` is empty and no layer can be released early."""
        return pressed_prefill(model, input_ids, self)


@dataclass
class PressedLayer(LayerState):
    """A layer as a press left it: n tokens of a prompt of `prompt` tokens."""

    masked: Tensor | None = None  # bool [num_key_value_heads, n]: held by kvpress, hidden from attention
    next_position: int = 0  # at which decoding continues

    @property
    def nbytes(self) -> int:
        heads, _, width = self.keys.shape
        return heads * self.prompt * (width + self.values.shape[2]) * self.keys.itemsize


# Not inference mode: presses that look at gradients could not use its tensors.
@torch.no_grad()
def pressed_prefill(model: PreTrainedModel, input_ids: Tensor, plan: PressedPrefill) -> PrefillState:
    """Run `model` over input_ids [n] under a press, with transformers' own attention and cache.

    Raises UserError with the press's complaint, and for a prompt beyond a sliding window.
    """
    kinds = kinds_of(model.config)
    if any(kind.keeps != "own" or kind.readers or kind.latent for kind in kinds):
        raise UserError(
            f"presses compress every layer, and {type(model).__name__} has layers without keys and values of their "
            "own: kvbench's own methods leave such layers alone"
        )
    window = min((kind.window for kind in kinds if kind.window), default=len(input_ids))
    if len(input_ids) > window:
        raise UserError(
            f"presses compress every layer, and {len(input_ids)} tokens exceed this model's sliding window of "
            f"{window}: kvbench's own methods leave such layers alone"
        )
    press = build_press(plan.press, json.loads(plan.arguments))
    if plan.compression_ratio is not None:
        press.compression_ratio = plan.compression_ratio
    modules = [layer.self_attn for layer in getattr(model.base_model, "layers", []) if hasattr(layer, "self_attn")]
    if not modules:
        raise UserError(f"{type(model).__name__} has no decoder layers with self_attn, which presses hook")
    cache, n = DynamicCache(), len(input_ids)
    watch = Watch(cache)
    with complaints(plan.press), own_attention(model, plan.attention):
        with hooks(modules, watch.arrived), press(model), hooks(modules, watch.compressed):
            out = model(
                input_ids=input_ids[None].to(model.device),
                **as_argument(model, cache),
                use_cache=True,
                logits_to_keep=1,
            )
        watch.count()  # some presses compress only now
    position = cache.get_seq_length() if rerotates(press) else n
    layers = [
        PressedLayer(
            owned(layer.keys[0]),
            owned(layer.values[0]),
            module.scaling,
            model.config.get_text_config().num_attention_heads,
            prompt=n,
            masked=take_mask(module, layer.keys),
            next_position=position,
        )
        for module, layer in zip(modules, cache.layers, strict=True)
    ]
    return PrefillState([*layers], out.logits[0, -1], watch.peak_bytes)


class Watch:
    """Counts the peak bytes of a cache, including all tokens of the layer that is being compressed."""

    def __init__(self, cache: DynamicCache):
        self.cache = cache
        self.uncompressed: list[Tensor] = []
        self.peak_bytes = 0

    def arrived(self, module: nn.Module, *_: object) -> None:
        """Runs before the press's hook."""
        layer = self.cache.layers[module.layer_idx]
        self.uncompressed = [layer.keys, layer.values]
        self.count()

    def compressed(self, module: nn.Module, *_: object) -> None:
        """Runs after the press's hook."""
        self.count()
        self.uncompressed = []

    def count(self) -> None:
        held = [x for layer in self.cache.layers for x in (layer.keys, layer.values)]
        self.peak_bytes = max(self.peak_bytes, storage_bytes(self.uncompressed + held))


@contextmanager
def hooks(modules: Sequence[nn.Module], hook: Callable[..., Any]) -> Iterator[None]:
    handles = [module.register_forward_hook(hook) for module in modules]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def own_attention(model: PreTrainedModel, name: str) -> Iterator[None]:
    """Let the model attend as transformers does while a press reads its tensors."""
    model.set_attn_implementation(name)
    try:
        yield
    finally:
        model.set_attn_implementation(ATTENTION)


def take_mask(module: nn.Module, keys: Tensor) -> Tensor | None:
    """The keys [1, heads, n, head_dim] that the press left in place but masks while decoding: bool [heads, n]."""
    indices = getattr(module, "masked_key_indices", None)
    module.masked_key_indices = None
    if indices is None:
        return None
    _, heads, positions = (torch.as_tensor(index, device=keys.device) for index in indices)
    masked = torch.zeros(keys.shape[1:3], dtype=torch.bool, device=keys.device)
    masked[heads, positions] = True
    return masked


def owned(x: Tensor) -> Tensor:
    """x in a storage of exactly its own bytes."""
    x = x.contiguous()
    return x if x.untyped_storage().nbytes() == x.nbytes else x.clone()
