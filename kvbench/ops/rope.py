"""Rotating stored keys: the model's own rotary embedding, applied to any positions."""

import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from kvbench.errors import UserError

FULL = "full_attention"  # as configurations call the layers that attend to all tokens
UNROTATED = frozenset({"cohere2", "exaone4"})  # models whose layers of full attention have no rotation
MOST_MOVES = 256  # tables of one position each


class Turns(NamedTuple):
    """Of positions: float32 [1, len, rotary_dim]."""

    cos: Tensor
    sin: Tensor


@dataclass(frozen=True)
class Rope:
    """The rotation R(p) of a model's keys. R(-p) undoes R(p), and R(a)R(b) = R(a+b).

    `embedding` returns cos and sin times an attention factor f (YaRN), which is divided out here: a cached key is
    f·R(p)k, and rotating it back gives f·k. `apply` is the modeling file's own `apply_rotary_pos_emb`, so partial and
    interleaved rotations are the model's. `varies` names what the rotation depends on besides the position, "" for
    nothing: see `fixed_rotation`.
    """

    embedding: nn.Module
    apply: Callable[[Tensor, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
    varies: str = ""
    layer_type: str | None = None  # of the layers whose rotation it is, where each type has its own (Gemma-3)
    moves: dict[tuple[int, torch.device], Turns] = field(
        default_factory=dict, compare=False, repr=False
    )  # tables of the latest `move`s

    def __deepcopy__(self, memo: dict[int, object]) -> "Rope":
        """Itself: a part of the model, which copies of a cache share."""
        return self

    @classmethod
    def of(cls, model: nn.Module) -> "Rope | None":
        """The rotation of a transformers causal language model, in its layers of full attention; None for a model
        without rotary embeddings."""
        base = text_decoder(model)
        embedding = getattr(base, "rotary_emb", None)
        apply = getattr(sys.modules[type(base).__module__], "apply_rotary_pos_emb", None)
        if embedding is None or apply is None:
            return None
        types = getattr(embedding, "rope_type", None)
        layer_type = FULL if isinstance(types, dict) and FULL in types else None
        return cls(
            embedding, of_pairs(apply), varying_with(embedding, model.config.get_text_config(), layer_type), layer_type
        )

    def rotate(self, x: Tensor, positions: Tensor) -> Tensor:
        """R(positions) x for x [heads, len, head_dim] and integer positions [len]; negative ones undo a rotation.

        Computed in float32 and returned in x's dtype, on x's device.
        """
        return self._turn(x, *self._tables(x, positions))

    def move(self, x: Tensor, by: int) -> Tensor:
        """R(by) x for x [heads, len, head_dim], the bits of `rotate`. All layers of a step read the same tables."""
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
        # on several GPUs the embedding lies on one of them, and its results with it
        return Turns(cos.to(x.device) / factor, sin.to(x.device) / factor)

    def _turn(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        turned, rest = x[None].float().split(self._split(x.shape[-1]), dim=-1)
        rotated, _ = self.apply(turned, turned, cos, sin)
        return (torch.cat([rotated, rest], dim=-1) if rest.shape[-1] else rotated)[0].to(x.dtype)

    def _split(self, head_dim: int) -> list[int]:
        """The channels of a head that are rotated, and those that are not."""
        turned = 2 * len(self._of_type("inv_freq"))
        return [turned, head_dim - turned]

    def _of_type(self, name: str, *default: object) -> Any:
        """An attribute of the embedding, which has one for each type of layers where these differ."""
        return getattr(self.embedding, f"{self.layer_type}_{name}" if self.layer_type else name, *default)


def of_pairs(apply: Callable[..., Any]) -> Callable[..., Any]:
    """A modeling file's `apply_rotary_pos_emb`, which may take one tensor (Gemma-3n), as a function of two."""
    if "k" in inspect.signature(apply).parameters:
        return apply
    return lambda q, k, cos, sin: (apply(q, cos, sin), apply(k, cos, sin))


def text_decoder(model: nn.Module) -> nn.Module:
    """The part of a model that has its decoder layers, without an image encoder beside them."""
    base = model.base_model
    return getattr(base, "language_model", base)


def varying_with(embedding: nn.Module, config: object, layer_type: str | None = None) -> str:
    """What a model's rotation depends on besides the position of a key; "" for nothing.

    Dynamic NTK and LongRoPE change the frequencies when a text exceeds the trained length: keys in one cache are then
    rotated with different frequencies, and those of earlier keys are no longer known.
    """
    kinds: Any = getattr(embedding, "rope_type", "default")  # or of each type of layers
    kind = kinds[layer_type] if layer_type else kinds
    without = any(not used for used in getattr(config, "no_rope_layers", None) or [])
    if not isinstance(kind, str) or without or getattr(config, "model_type", None) in UNROTATED:
        return "the layer"
    return f"the length of the text (rope_type={kind})" if "dynamic" in kind or kind == "longrope" else ""


def fixed_rotation(rope: Rope | None, who: str) -> Rope:
    """`rope`, for rotating stored keys. Raises UserError where the model has none that depends on positions alone."""
    if rope is None:
        raise UserError(f"{who} needs a model with rotary position embeddings")
    if rope.varies:
        raise UserError(
            f"{who} rotates stored keys by their positions, but this model's rotation also depends on {rope.varies}"
        )
    return rope
