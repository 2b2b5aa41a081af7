"""LAVa's score: attention of the last queries, with heads weighted by the norm of their largest value."""

from torch import Tensor

from kvbench.methods.snapkv import WindowAttention
from kvbench.ops.norms import float32_norm
from kvbench.prefill import LayerState
from kvbench.utils.checked import checked


@checked
class LAVa(WindowAttention):
    """LAVa (Shen et al. 2025, arXiv 2509.09754): SnapKV's votes times the largest L1 norm of the head's values.

    The maximum is over the tokens before the window. It is one number per KV head, so the order of a head's tokens is
    SnapKV's. It changes the head's share of the layer's budget (`heads=lava`) and the layer's share of the model's
    budget (`allocation=score_entropy`).
    """

    def votes(self, layer: LayerState) -> Tensor:
        context = layer.values[:, : layer.n - self.window]
        largest = float32_norm(context, order=1).amax(dim=-1)
        group = layer.num_attention_heads // layer.num_key_value_heads
        return layer.window_votes(self.window) * largest.repeat_interleave(group)[:, None]
