"""How unlike a head's channels are, which decides whether one scale can serve several of them.

A format that rounds many channels of a vector under one scale (FP8 per token, q4_0, NVFP4), or spreads them over each
other (TurboQuant), leaves little of small channels beside a very large one. KIVI (arXiv 2402.02750, section 3.2) and
KVQuant (arXiv 2401.18079, section 3.1) quantise keys by channel because of it.
"""

from torch import Tensor

from kvbench.prefill import LayerState
from kvbench.probes.base import Probe
from kvbench.probes.similarity import Vectors
from kvbench.utils.checked import checked


def stored(layer: LayerState, vectors: Vectors) -> Tensor:
    """The vectors as caches store them, keys after RoPE: float32 [num_key_value_heads, n, head_dim]."""
    return (layer.keys if vectors == "keys" else layer.values).float()


@checked
class ChannelSpread(Probe):
    """Root mean square of a head's largest channel over that of its median channel, [num_key_value_heads].

    of="keys" as they are stored (after RoPE), of="values".
    """

    of: Vectors = "keys"

    @property
    def quantity(self) -> str:
        return f"largest over median channel of {self.of} (root mean square)"

    def observe(self, layer: LayerState, prompt: int) -> Tensor:
        squares = stored(layer, self.of).square().mean(1)  # [num_key_value_heads, head_dim]
        return (squares.amax(-1) / squares.median(-1).values).sqrt()


@checked
class ChannelMeans(Probe):
    """Share of a head's sum of squares that its channels' means over the tokens make up, [num_key_value_heads].

    The mean of keys adds the same to all logits of a query: attention is the same without it, but a format that rounds
    it with the rest has fewer levels left for what tells tokens apart.
    """

    of: Vectors = "keys"

    @property
    def quantity(self) -> str:
        return f"share of squares of {self.of} in their channels' means"

    def observe(self, layer: LayerState, prompt: int) -> Tensor:
        vectors = stored(layer, self.of)
        return vectors.mean(1).square().sum(-1) / vectors.square().mean(1).sum(-1)
