"""Rotating stored keys: the model's own rotary embedding, applied to any positions."""

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from kvbench.errors import UserError

FULL = "full_attention"  # the name of layers that attend to all tokens in models' configurations
MOST_MOVES = 256  # tables of one position each


class Turns(NamedTuple):
    """Cosines and sines of positions, float32 [1, len, rotary_dim]."""

    cos: Tensor
    sin: Tensor


@dataclass(frozen=True)
class Rope:
    """The rotation R(p) of a model's keys. R(-p) undoes R(p), and R(a)R(b) = R(a+b).

    `embedding` returns cos and sin times an attention factor f (YaRN), which is divided out here: a cached key is
    f·R(p)k, and rotating it back gives f·k. `apply` is the modeling file's `apply_rotary_pos_emb`, so partial and
    interleaved rotations are the model's. `varies` names what the rotation depends on besides the position; "" for
    nothing (see `fixed_rotation`). A `still` rotation is the identity, for a layer whose keys are not rotated. If only
    some channels of a head are rotated, they are the first channels, or the `last` (latent attention).
    kvbench.models.probe finds the rotation of each layer.
    """

    embedding: nn.Module
    apply: Callable[[Tensor, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
    varies: str = ""
    layer_type: str | None = None  # the type of layers with this rotation, if each type has its own (Gemma-3)
    still: bool = False
    last: bool = False
    moves: dict[tuple[int, torch.device], Turns] = field(
        default_factory=dict, compare=False, repr=False
    )  # tables of the latest `move`s

    def __deepcopy__(self, memo: dict[int, object]) -> "Rope":
        """The same object: copies of a cache share the rotation, which belongs to the model."""
        return self

    @classmethod
    def from_model(cls, model: nn.Module) -> "Rope | None":
        """The rotation of a transformers causal language model, or of its layers of full attention if types of layers
        have different rotations; None for a model without rotary embeddings."""
        return next(iter(cls.all_from_model(model)), None)

    @classmethod
    def all_from_model(cls, model: nn.Module) -> "list[Rope]":
        """Every rotation that a model can compute, the rotation of full attention first. A model may have an embedding
        for each type of layers, several embeddings, or an embedding that no layer reads (Granite-SWA)."""
        file = sys.modules[type(text_decoder(model)).__module__]
        apply = getattr(file, "apply_rotary_pos_emb", None)
        if apply is None and hasattr(file, "apply_rotary_pos_emb_interleave"):  # which leaves keys in halves
            apply = rotated_halves
        if apply is None:
            return []
        apply = of_pairs(apply)
        return [
            cls(embedding, apply, varies_with_length(rope_type(embedding, layer_type)), layer_type)
            for embedding in embeddings_of(model)
            for layer_type in types_of(embedding)
        ]

    def rotate(self, x: Tensor, positions: Tensor) -> Tensor:
        """R(positions) x for x [heads, len, head_dim], integer positions [len]; negative positions undo a rotation.

        Computed in float32 and returned in x's dtype, on x's device.
        """
        if self.still:
            return x
        return self._turn(x, *self._tables(x, positions))

    def move(self, x: Tensor, by: int) -> Tensor:
        """R(by) x for x [heads, len, head_dim], equal to `rotate`. All layers of a step read the same tables."""
        if self.still:
            return x
        key = (by, x.device)
        if key not in self.moves:
            if len(self.moves) == MOST_MOVES:
                self.moves.clear()
            self.moves[key] = self._tables(x, torch.full((1,), by, device=x.device))
        return self._turn(x, *self.moves[key])

    def _tables(self, x: Tensor, positions: Tensor) -> Turns:
        """Cosines and sines [1, len, rotary_dim] of positions [len], float32, on x's device."""
        like = x.new_empty(0, dtype=torch.float32)  # the embedding reads dtype and device only
        of_type = {"layer_type": self.layer_type} if self.layer_type else {}
        cos, sin = self.embedding(like, positions[None].to(x.device), **of_type)
        factor = self._of_type("attention_scaling", 1.0)
        # with several GPUs, the embedding and its results are on one GPU
        return Turns(cos.to(x.device) / factor, sin.to(x.device) / factor)

    def _turn(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        sizes = self._split(x.shape[-1])
        *before, turned, after = x[None].float().split([*sizes[::-1], 0] if self.last else sizes, dim=-1)
        rotated, _ = self.apply(turned, turned, cos, sin)
        parts = [part for part in (*before, rotated, after) if part.shape[-1]]
        return (torch.cat(parts, dim=-1) if len(parts) > 1 else rotated)[0].to(x.dtype)

    def _split(self, head_dim: int) -> list[int]:
        """How many channels of a head are rotated, and how many are not."""
        turned = 2 * len(self._of_type("inv_freq"))
        return [turned, head_dim - turned]

    def _of_type(self, name: str, *default: object) -> Any:
        """An attribute of the embedding, which has one per type of layers if these types differ."""
        return getattr(self.embedding, f"{self.layer_type}_{name}" if self.layer_type else name, *default)


@lru_cache(maxsize=8)
def mean_rotation(rope: Rope, positions: range | tuple[int, ...], head_dim: int, device: torch.device) -> Tensor:
    """The mean rotation over `positions`, float32 [head_dim, head_dim], which multiplies rows from the right.

    All layers of a prompt share it.
    """
    basis = torch.eye(head_dim, device=device)[:, None].expand(-1, len(positions), -1)
    return rope.rotate(basis, torch.tensor(positions)).mean(dim=1)


def of_pairs(apply: Callable[..., Any]) -> Callable[..., Any]:
    """A modeling file's `apply_rotary_pos_emb`, which may take one tensor (Gemma-3n), as a function of two."""
    if "k" in inspect.signature(apply).parameters:
        return apply
    return lambda q, k, cos, sin: (apply(q, cos, sin), apply(k, cos, sin))


def rotated_halves(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Channels of the first half of x [sequences, heads, len, rotary_dim] turned with those of the second half."""
    first, second = x.chunk(2, dim=-1)
    return x * cos[:, None] + torch.cat([-second, first], dim=-1) * sin[:, None]


def text_decoder(model: nn.Module) -> nn.Module:
    """The part of a model that has the decoder layers, without an image encoder."""
    base = model.base_model
    named = (getattr(base, name, None) for name in ("language_model", "text_model"))
    return next((part for part in named if isinstance(part, nn.Module)), base)


def decoder_layers(model: nn.Module) -> Sequence[nn.Module]:
    """The decoder layers of a model's text decoder, which may have a head (Llama-4); none if it has none."""
    text = text_decoder(model)
    inner = text if hasattr(text, "layers") else getattr(text, "model", None)
    return getattr(inner, "layers", [])


def embeddings_of(model: nn.Module) -> list[nn.Module]:
    """The rotary embeddings of a model's text decoder: the modules that hold frequencies."""
    return [
        module
        for module in text_decoder(model).modules()
        if any(name.endswith("inv_freq") for name, _ in module.named_buffers(recurse=False))
    ]


def types_of(embedding: nn.Module) -> list[str | None]:
    """The types of layers for which an embedding has frequencies, full attention first; [None]: one set for all."""
    kinds: Any = getattr(embedding, "rope_type", "default")
    return sorted(kinds, key=lambda kind: kind != FULL) if isinstance(kinds, Mapping) else [None]


def rope_type(embedding: nn.Module, layer_type: str | None) -> str:
    """The kind of an embedding's frequencies, as transformers names it: default, dynamic, longrope, …"""
    kinds: Any = getattr(embedding, "rope_type", "default")
    return str(kinds[layer_type] if layer_type else kinds)


def varies_with_length(kind: str) -> str:
    """What a rotation of this rope_type depends on besides the position of a key; "" for nothing.

    Dynamic NTK and LongRoPE change the frequencies when a text exceeds the trained length: keys in one cache are then
    rotated with different frequencies, and the frequencies of earlier keys are not known any more.
    """
    return f"the length of the text (rope_type={kind})" if "dynamic" in kind or kind == "longrope" else ""


def fixed_rotation(rope: Rope | None, who: str) -> Rope:
    """`rope`, to rotate stored keys. Raises UserError if it is None or depends on more than positions."""
    if rope is None:
        raise UserError(f"{who} needs a model with rotary position embeddings")
    if rope.varies:
        raise UserError(
            f"{who} rotates stored keys by their positions, but this model's rotation also depends on {rope.varies}"
        )
    return rope
