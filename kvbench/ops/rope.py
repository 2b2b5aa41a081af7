"""Rotating stored keys: the model's own rotary embedding, applied to any positions."""

import sys
from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor, nn


@dataclass(frozen=True)
class Rope:
    """The rotation R(p) of a model. R is a rotation, so R(-p) undoes R(p) and R(a)R(b) = R(a+b).

    `embedding` yields cos and sin (times an attention factor, taken out here); `apply` is the modeling
    file's own `apply_rotary_pos_emb`, so partial and interleaved rotations come out as the model has them.
    """

    embedding: nn.Module
    apply: Callable

    @classmethod
    def of(cls, model: nn.Module) -> "Rope | None":
        """The rotation of a transformers causal language model; None where it has none to be found."""
        base = model.base_model
        embedding = getattr(base, "rotary_emb", None)
        apply = getattr(sys.modules[type(base).__module__], "apply_rotary_pos_emb", None)
        return cls(embedding, apply) if embedding is not None and apply is not None else None

    def rotate(self, x: Tensor, positions: Tensor) -> Tensor:
        """R(positions) x for x [heads, len, head_dim] and integer positions [len] (negative ones undo)."""
        cos, sin = self.embedding(x.float(), positions[None].to(x.device))  # [1, len, rotary_dim]
        factor = getattr(self.embedding, "attention_scaling", 1.0)
        rotated, _ = self.apply(x[None].float(), x[None].float(), cos / factor, sin / factor)
        return rotated[0].to(x.dtype)
