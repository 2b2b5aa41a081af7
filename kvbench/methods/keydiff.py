"""KeyDiff's score: how much a key differs from the others."""

import torch.nn.functional as F
from torch import Tensor

from kvbench.methods.scoring.base import Scoring
from kvbench.prefill import LayerState
from kvbench.utils.checked import NonNegative, checked


@checked
class KeyDiff(Scoring):
    """Negative cosine between a key (after RoPE) and its head's anchor (Park et al. 2025, arXiv 2504.15364).

    The anchor is the mean of the head's keys, each scaled to unit length. Scores are computed in float32, because
    bfloat16 makes many near-ties. The paper evicts after every block of a long prompt (`keydiff_paper`).

    window   last tokens that are always kept.
    """

    window: NonNegative = 0

    per_query_head = False
    signed = True

    def votes(self, layer: LayerState) -> Tensor:
        keys = layer.keys.float()
        anchor = F.normalize(keys, dim=-1).mean(dim=1, keepdim=True)  # [num_key_value_heads, 1, head_dim]
        return -F.cosine_similarity(keys, anchor, dim=-1)
