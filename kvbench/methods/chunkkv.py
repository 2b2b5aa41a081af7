"""ChunkKV's score: the mean score of a chunk, so that tokens are kept or dropped in chunks."""

from dataclasses import field

import torch.nn.functional as F
from torch import Tensor

from kvbench.errors import UserError
from kvbench.methods.scoring.base import Scoring
from kvbench.methods.scoring.over import OverScoring
from kvbench.methods.snapkv import WindowAttention
from kvbench.utils.checked import Positive, checked


@checked
class Chunks(OverScoring):
    """The mean score of `base` over a chunk, for each token of it (Liu et al. 2025, ChunkKV, arXiv 2502.00299).

    Consecutive tokens before the window form chunks, from the first token on; the last chunk may be shorter. The best
    chunks are kept whole. If the budget ends inside a chunk, the first tokens of that chunk are kept. While decoding,
    consecutive stored tokens form chunks.

    base     the scoring whose scores are averaged, after its pooling.
    length   tokens of a chunk: 10 in the paper, 20 in kvpress.
    """

    base: Scoring = field(default_factory=lambda: WindowAttention(kernel=1))
    length: Positive = 10

    copies = True

    def __post_init__(self) -> None:
        if not self.base.orders_by_scores or isinstance(self.base, Chunks):
            raise UserError(
                f"Chunks averages the scores of its base, but {type(self.base).__name__} does not choose by one score "
                "of each token: base must be another scoring"
            )
        super().__post_init__()

    def smooth(self, votes: Tensor) -> Tensor:
        scores = self.base.smoothed(votes)
        n = scores.shape[1]
        length = min(self.length, n)  # of a longer one all would be held
        means = F.avg_pool1d(scores[None], length, stride=length, ceil_mode=True)[0]
        return means.repeat_interleave(length, dim=1)[:, :n]
