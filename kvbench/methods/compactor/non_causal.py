"""Compactor's attention score: attention inside blocks of tokens, to later tokens too."""

from torch import Tensor
from torch.nn.functional import avg_pool1d

from kvbench.methods.facts import values
from kvbench.methods.scoring.base import Scoring
from kvbench.prefill import Blocks, LayerState, Needs
from kvbench.utils.checked import NonNegative, Positive, checked

POOLED = 3  # neighbouring tokens whose scores are averaged, as in kvpress


@checked
class NonCausalAttention(Scoring):
    """Attention that a token receives in its block, without a causal mask (Chari & Van Durme 2025, Compactor,
    arXiv 2507.08143).

    The prompt is cut into blocks of `block` tokens, and every query attends to all keys of its block. The score is the
    sum over queries times the norm of the value, averaged over 3 neighbours (zeros beyond the ends). Source:
    NonCausalAttnPress in kvpress, by the paper's author, with its unscaled logits.

    filled   true: fill the last block with queries and keys of zeros, which take part in the attention, as in kvpress,
             whose mask subtracts too small a number to exclude them. false: the last block is shorter.
    sinks    first tokens that are always kept.
    window   last tokens that are always kept.
    """

    short = values(block=16)

    block: Positive = 256
    filled: bool = False
    sinks: NonNegative = 0
    window: NonNegative = 0

    def __post_init__(self) -> None:
        self.needs = Needs(block_sums=frozenset([self.blocks(0, 0)]))

    def blocks(self, skip: int, leave: int) -> Blocks:
        return Blocks(self.block, skip, leave, self.filled)

    def votes(self, layer: LayerState) -> Tensor:
        return self.keep_sinks(self.between(layer, 0, 0))

    def between(self, layer: LayerState, skip: int, leave: int) -> Tensor:
        """Scores of the tokens without the first `skip` and last `leave` ones, float32 [num_attention_heads, len]."""
        sums = layer.block_sums[self.blocks(skip, leave)]
        norms = layer.values[:, skip : layer.n - leave].float().norm(dim=-1)
        weighted = sums * norms.repeat_interleave(len(sums) // len(norms), dim=0)
        return avg_pool1d(weighted, POOLED, stride=1, padding=POOLED // 2)
