"""R-KV's score: attention of the last queries minus the similarity of a key to the other keys."""

import torch
import torch.nn.functional as F
from torch import Tensor

from kvbench.methods.scoring.window import Kernel, Window
from kvbench.ops.softmax import capped_, plain
from kvbench.prefill import LayerState
from kvbench.utils.checked import Fraction, Number, Positive, checked

TILE = 1024  # keys whose similarity to all others is held at a time
EPSILON = 1e-8


@checked
class RKV(Window):
    """R-KV (Cai et al. 2025, arXiv 2505.24133): importance · I − (1 − importance) · R, per KV head and in float32.

    I   attention of the last w queries: the largest logit of a group, softmax over the keys before the window, the mean
        over the queries, max-pooled over `kernel` neighbours.
    R   softmax over the keys of the mean cosine of all stored keys with a key. Two cosines of every key are set to 0:
        the cosine with itself, and the cosine with the last key whose cosine exceeds `threshold`, so that the newest of
        similar tokens is not redundant. Without such a key the cosine with the first key is set to 0, as in the
        released code.

    importance   lambda: 0.1 in the authors' README, 0.07 in their code; 1 leaves SnapKV's score over these queries.
    """

    window: Positive = 8
    kernel: Kernel = 7
    importance: Fraction = 0.1
    threshold: Number = 0.5

    per_query_head = False
    signed = True

    def votes(self, layer: LayerState) -> Tensor:
        votes = self.importance * self.attention(layer)
        if self.importance < 1:
            redundancy = layer.once(("redundancy", self.threshold), lambda: self.redundancy(layer.keys))
            votes[:, : layer.n - self.window] -= (1 - self.importance) * redundancy[:, : -self.window]
        return votes

    def attention(self, layer: LayerState) -> Tensor:
        """I, float32 [num_key_value_heads, n]; 0 in the window."""
        queries = layer.last_queries(self.window).float().unflatten(0, (layer.num_key_value_heads, -1))
        earlier = layer.keys[:, : layer.n - self.window].float()
        logits = (queries @ earlier[:, None].mT).amax(dim=1) * plain(layer.scaling)  # [num_key_value_heads, w, n - w]
        capped_(
            logits, layer.scaling
        )  # without attention sinks, which belong to query heads: these are a group's largest logits
        mean = logits.softmax(dim=-1).mean(dim=1)
        return F.pad(F.max_pool1d(mean, self.kernel, stride=1, padding=self.kernel // 2), (0, self.window))

    def redundancy(self, keys: Tensor) -> Tensor:
        """R of keys [heads, n, head_dim], float32 [heads, n]."""
        unit = keys.float()
        unit = unit / (unit.norm(dim=-1, keepdim=True) + EPSILON)
        n = keys.shape[1]
        places = torch.arange(n, device=keys.device)
        total = torch.zeros(len(keys), n, device=keys.device)
        for tile in places.split(TILE):
            cosine = unit.index_select(1, tile) @ unit.mT
            cosine.masked_fill_(places == tile[:, None], 0)
            last = places.where(cosine > self.threshold, 0).amax(dim=-1, keepdim=True)
            total += cosine.scatter_(-1, last, 0).sum(dim=1)
        return (total / n).softmax(dim=-1)
