"""TriAttention's score: expected logits of the mean query at future positions, and norms."""

from functools import lru_cache

import torch
from torch import Tensor

from kvbench.methods.facts import values
from kvbench.methods.scoring.base import Scoring
from kvbench.ops.rope import Rope, fixed_rotation, mean_rotation
from kvbench.prefill import LayerState, Needs
from kvbench.utils.checked import Positive, checked

SMALLEST = 1e-6  # smallest standard deviation of a head's scores


@checked
class TriAttention(Scoring):
    """A trigonometric series in the distance to future queries, from the mean query before RoPE, plus norms (Mao et al.
    2026, arXiv 2604.04921).

    Let q_f and k_f be the pairs of channels that RoPE rotates with frequency f, as complex numbers before RoPE. A key's
    score at a distance Δ is Σ_f |E q_f|·|k_f|·cos(f·Δ + φ_f) + Σ_f (E|q_f| − |E q_f|)·|k_f|, where φ_f is the angle
    between E q_f and k_f. It is averaged over queries 1, 2, 4, … `farthest` positions after the text, then standardised
    per query head. Source: `score_keys_for_round` and `normalize_scores` of the released code, which selects per layer
    and KV head by the largest score of a group's heads.

    observed   last queries of the prompt, whose means are E q_f and E|q_f|. The released code measures the means on
               other text beforehand.
    farthest   upper bound of the offsets.
    """

    short = values(observed=8)

    observed: Positive = 512
    farthest: Positive = 65536

    signed = True

    def __post_init__(self) -> None:
        self.needs = Needs(window=self.observed)

    def votes(self, layer: LayerState) -> Tensor:
        scores = self.raw(layer)
        deviation = scores.std(dim=1, keepdim=True, correction=0).clamp_min(SMALLEST)
        return (scores - scores.mean(dim=1, keepdim=True)) / deviation

    def raw(self, layer: LayerState) -> Tensor:
        """The scores before standardisation, float32 [num_attention_heads, n]."""
        rope = fixed_rotation(layer.rope, "TriAttention")
        head_dim = layer.keys.shape[2]
        queries = layer.last_queries(self.observed).float()
        queries = rope.rotate(queries, -torch.arange(layer.seen - queries.shape[1], layer.seen))
        centre = queries.mean(dim=1, keepdim=True)  # [num_attention_heads, 1, head_dim]
        future = tuple(layer.seen + 2**power for power in range(self.farthest.bit_length()))
        turn = mean_rotation(rope, future, head_dim, queries.device)
        pairs = pairing(rope, head_dim, queries.device)
        spread = (pair_norms(queries, pairs).mean(dim=1, keepdim=True) - pair_norms(centre, pairs)) / 2  # twice a pair
        heads = layer.num_key_value_heads
        of_groups = (x[:, 0].unflatten(0, (heads, -1)) for x in (centre @ turn, spread))
        keys = layer.keys.float()
        rotated, constant = of_groups
        return (rotated @ keys.mT + constant @ pair_norms(keys, pairs).mT).flatten(0, 1)


@lru_cache(maxsize=4)
def pairing(rope: Rope, head_dim: int, device: torch.device) -> Tensor:
    """Which channels RoPE rotates together: float32 [head_dim, head_dim], ones for a channel and its partner; zeros in
    rows of channels that RoPE does not rotate."""
    turned = rope.rotate(torch.eye(head_dim, device=device)[:, None], torch.ones(1, dtype=torch.int64))[:, 0]
    partners = (turned - turned.diagonal().diag()) != 0
    return (partners | (partners.any(dim=1).diag())).float()


def pair_norms(x: Tensor, pairs: Tensor) -> Tensor:
    """|x_f| in both channels of each pair, in the shape of x [heads, len, head_dim]."""
    return (x.square() @ pairs).sqrt()
