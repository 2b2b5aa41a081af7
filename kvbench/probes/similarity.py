"""Similarity between the vectors of a head, which a codebook exploits (SpindleKV, figures 3, 7 and 8)."""

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from kvbench.errors import UserError
from kvbench.ops.directions import TILE, bound, directions
from kvbench.ops.rope import fixed_rotation
from kvbench.prefill import LayerState
from kvbench.probes.base import Probe
from kvbench.utils.checked import checked

Vectors = Literal["keys", "values"]


def vectors_of(layer: LayerState, vectors: Vectors) -> Tensor:
    """The layer's keys before RoPE, or its values: [num_key_value_heads, n, head_dim]; n is at least 2."""
    if layer.n < 2:
        raise UserError("similarity needs at least two tokens: the prompt has one")
    if vectors == "values":
        return layer.values
    rope = fixed_rotation(layer.rope, "of=keys")
    return rope.rotate(layer.keys.float(), -torch.arange(layer.n, device=layer.keys.device))


@checked
class SimilarPairs(Probe):
    """Share of the pairs of two tokens whose vectors have a cosine above theta, [num_key_value_heads].

    of="keys" before RoPE (the paper's theta: 0.9), of="values" (0.6). SpindleKV reports the number of pairs; the share
    can be compared between prompts of different lengths. Cosines are from its codebook, exact to 2^-25.
    """

    of: Vectors = "keys"
    theta: Annotated[float, Field(ge=-1, le=1)] = 0.9

    @property
    def quantity(self) -> str:
        return f"share of pairs of {_named(self.of)} with cosine above {self.theta:g}"

    def observe(self, layer: LayerState, prompt: int) -> Tensor:
        vectors = vectors_of(layer, self.of)
        pairs = layer.n * (layer.n - 1) // 2
        return torch.tensor([self._above(directions(head)) / pairs for head in vectors])

    def _above(self, units: Tensor) -> int:
        """Pairs a < b of directions [n, d] whose cosine exceeds theta."""
        above = 0
        for start in range(0, len(units), TILE):
            tile = units[start : start + TILE] @ units[start:].T
            above += int((tile > bound(self.theta)).triu(1).sum())
        return above


@checked
class NearestVector(Probe):
    """Cosine of a token's vector with the nearest other one, mean over tokens, [num_key_value_heads]."""

    of: Vectors = "keys"

    @property
    def quantity(self) -> str:
        return f"cosine of {_named(self.of)} with the nearest other, mean over tokens"

    def observe(self, layer: LayerState, prompt: int) -> Tensor:
        return torch.stack([self._nearest(directions(head)) for head in vectors_of(layer, self.of)])

    def _nearest(self, units: Tensor) -> Tensor:
        best = []
        for start in range(0, len(units), TILE):
            tile = units[start : start + TILE] @ units.T
            tile.diagonal(start).fill_(-2)  # not with itself
            best.append(tile.amax(dim=1))
        return torch.cat(best).mean()


def _named(vectors: str) -> str:
    return "keys before RoPE" if vectors == "keys" else "values"
