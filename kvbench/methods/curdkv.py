"""CurDKV's score: a token's share of the squared norms of the keys and values in its block."""

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from kvbench.methods.scoring.base import Scoring
from kvbench.prefill import LayerState
from kvbench.utils.checked import NonNegative, Positive, checked


@checked
class CUR(Scoring):
    """Approximate leverage of a token's key and value (Sengupta et al. 2025, CurDKV, arXiv 2509.15038).

    The prompt is cut into blocks of `local` tokens. A token's leverage is its share of the squared L2 norms of its
    block: l_K for keys, l_V for values. Scores are float32 and normalised to a sum of 1 per head, as in kvpress's
    CURPress, without its optional random projection.

    leverage   the score of a token. product: l_K · l_V. mean: the mean of both. key: l_K. value: l_V.
    local      tokens in a block; null: no blocks, the squared norms without division.
    sinks      first tokens that are always kept.
    window     last tokens that are always kept.
    """

    leverage: Literal["product", "mean", "key", "value"] = "product"
    local: Positive | None = 16
    sinks: NonNegative = 4
    window: NonNegative = 0

    per_query_head = False

    def votes(self, layer: LayerState) -> Tensor:
        keys = self.shares(layer.keys) if self.leverage != "value" else None
        values = self.shares(layer.values) if self.leverage != "key" else None
        if keys is None or values is None:
            votes = values if keys is None else keys
        else:
            votes = keys * values if self.leverage == "product" else (keys + values) / 2
        return self.keep_sinks(normalised(votes))

    def shares(self, x: Tensor) -> Tensor:
        """Each row's share in the squared norms of its block: x [heads, n, head_dim] to float32 [heads, n]."""
        squares = x.float().square().sum(dim=-1)
        if self.local is None:
            return squares
        n = squares.shape[1]
        blocks = F.pad(squares, (0, -n % self.local)).unflatten(1, (-1, self.local))
        return normalised(blocks).flatten(1)[:, :n]


def normalised(x: Tensor) -> Tensor:
    """x [.., len], not negative, divided by its sums over the last dimension; rows of zeros stay."""
    return x / x.sum(dim=-1, keepdim=True).clamp_min(torch.finfo(x.dtype).tiny)
