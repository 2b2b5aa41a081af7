"""How a loaded model behaves with kvbench's attention and caches, tested with a few tokens."""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from transformers import PreTrainedModel

from kvbench.models.attending_layer import AttendingLayer
from kvbench.models.latents import Latents
from kvbench.models.layer_kinds import LayerKind, kinds_of
from kvbench.models.reads_alike import (
    KVBENCH,
    cache_layers,
    check_reads_alike,
    difference,
    evaluating,
    layers_of,
    naming_hooks,
    outputs_of,
    read,
    refusing,
)
from kvbench.models.rope_growth import growth_of
from kvbench.ops.rope import Rope

FARTHEST = 1023  # of the other position, so far that rotation changes slow channels much more than rounding does
# The largest difference, as a share, of keys whose rotation was undone: rounding to bfloat16 makes 0.004 to 0.006.
CLOSE = 0.03

Ropes = tuple[Rope | None, ...]  # by layer of the model, lowest first; None: it keeps no keys, or does not rotate them


class Probed(NamedTuple):
    ropes: Ropes
    alike: float  # difference of hidden states from the model's own attention


_PROBED: WeakKeyDictionary[PreTrainedModel, Probed] = WeakKeyDictionary()
_COUNTS: WeakKeyDictionary[PreTrainedModel, bool] = WeakKeyDictionary()


class ProbeLayer(AttendingLayer):
    """Keeps the key of the single token that is read, at position `seen`.

    The token attends only to itself, so that all layers read the same hidden states at any position.
    """

    def __init__(self, seen: int):
        super().__init__()
        self.seen = seen

    @property
    def windowed(self) -> bool:
        """True: no text is too long for it."""
        return True

    def keep_latents(self, latents: Latents) -> None:
        """Nothing: the probe reads expanded keys."""

    def append(self, keys: Tensor, values: Tensor) -> None:
        self.keys, self.values = keys, values

    def attend(self, query: Tensor, scaling: object) -> Tensor:
        """The token's own values [1, num_attention_heads, 1, head_dim]."""
        return self.values.repeat_interleave(query.shape[1] // self.values.shape[1], dim=1)


def ropes_of(model: PreTrainedModel) -> Ropes:
    """The rotation of each layer's keys, probed once for a model.

    `Rope.varies` marks a layer that rotates in another way than all of the model's rotary embeddings.
    Raises UserError if the model cannot read a token with kvbench's attention and caches.
    """
    return _probed(model).ropes


def _probed(model: PreTrainedModel) -> Probed:
    if model not in _PROBED:
        with evaluating(model), naming_hooks(model):
            _PROBED[model] = _probe(model)
    return _PROBED[model]


def manifest_fields(model: PreTrainedModel) -> dict[str, float | list[int]]:
    """For the manifest: `reads_alike`, the difference of hidden states from the model's own attention, and
    `unrotated_layers`, which keep keys without rotating them, if there are any."""
    ropes, share = _probed(model)
    still = [at for at, rope in enumerate(ropes) if rope is not None and rope.still]
    alike: dict[str, float | list[int]] = {"reads_alike": share}
    return alike | ({"unrotated_layers": still} if still else {})


def counts_positions(model: PreTrainedModel) -> bool:
    """Whether a step depends on the cache's number of tokens, and not only on `position_ids`: its work on the GPU then
    differs from token to token. Probed once for a model that `ropes_of` reads."""
    if model not in _COUNTS:
        with evaluating(model):
            _COUNTS[model] = _counts_positions(model)
    return _COUNTS[model]


@torch.no_grad()
def _counts_positions(model: PreTrainedModel) -> bool:
    kinds, position = kinds_of(model.config), _other_position(model)
    pairs = zip(*(_keys_at(model, kinds, [0], seen) for seen in (0, position)), strict=True)
    return any(a is not None and b is not None and not torch.equal(a, b) for a, b in pairs)


@torch.no_grad()
def _probe(model: PreTrainedModel) -> Probed:
    kinds, candidates = kinds_of(model.config), Rope.all_from_model(model)
    alike = check_reads_alike(model, kinds)
    if not candidates:
        return Probed((None,) * len(kinds), alike)
    position = _other_position(model)
    keys = _keys_at(model, kinds, [0, position], position)
    types = getattr(model.config.get_text_config(decoder=True), "layer_types", None) or [None] * len(kinds)
    ropes = tuple(
        None if pair is None else _rope(at, pair[0], pair[1], position, _of_type(candidates, types[at]))
        for at, pair in enumerate(keys)
    )
    return Probed(ropes, alike)


def _other_position(model: PreTrainedModel) -> int:
    """A position far from the first, but not so far that long texts are rotated with other frequencies."""
    longest = getattr(model.config.get_text_config(decoder=True), "max_position_embeddings", None)
    growth = growth_of(model)
    limits = [FARTHEST + 1, longest, growth and growth.length]
    return min(limit for limit in limits if limit) - 1


def _keys_at(
    model: PreTrainedModel, kinds: Sequence[LayerKind], positions: Sequence[int], seen: int
) -> list[Tensor | None]:
    """Keys [len(positions), num_key_value_heads, 1, head_dim] of each layer that keeps its own, for one token at each
    of the positions, in a sequence for each, while the cache reports `seen` tokens."""
    layers = cache_layers(kinds, partial(ProbeLayer, seen))
    ids = torch.full((len(positions), 1), model.get_input_embeddings().weight.shape[0] // 2, device=model.device)
    modules = layers_of(model, kinds)
    # After the last layer there are only logits, whose weights may be a quarter of a small model's.
    ends = outputs_of(modules[-1], True) if modules else nullcontext()
    with refusing(type(model).__name__, KVBENCH, 1), ends:
        read(model, ids, torch.tensor(positions, device=model.device)[:, None], layers, logits_to_keep=1)
    return [layer.keys if isinstance(layer, ProbeLayer) else None for layer in layers]


def _of_type(candidates: Sequence[Rope], layer_type: str | None) -> list[Rope]:
    """The candidates, a layer's own type first, which wins if others are as close."""
    return sorted(candidates, key=lambda rope: rope.layer_type != layer_type)


def _rope(at: int, first: Tensor, other: Tensor, position: int, candidates: Sequence[Rope]) -> Rope:
    """The rotation, of the candidates or none, that leads from the other position back to the first key."""
    tried = [*candidates, *(replace(rope, last=True) for rope in candidates)]
    tried.append(replace(candidates[0], still=True, varies=""))
    distances = [_distance(first, other, position, rope) for rope in tried]
    best = min(range(len(tried)), key=distances.__getitem__)
    if distances[best] < CLOSE:
        return tried[best]
    return replace(candidates[0], varies=f"more than its rotary embedding (layer {at})")


def _distance(first: Tensor, other: Tensor, position: int, rope: Rope) -> float:
    """The difference of the other key, rotated back, from the first, as a share of its length."""
    try:
        back = rope.rotate(other.float(), torch.tensor([-position]))
    except (RuntimeError, ValueError):  # a rotation of heads of another width (Gemma-4)
        return float("inf")
    return difference(back, first)
