"""FP8: keys and values in eight bits each, as vLLM's quantised cache has them."""

from kvbench.cache.base import LayerCache
from kvbench.cache.coded.float8 import Float8Sequence, Scale
from kvbench.cache.coded.layer import CodedLayer
from kvbench.methods.selection import Selection
from kvbench.methods.storage.base import KeptLayer, Storage, coded_share
from kvbench.methods.storage.by_head import by_head
from kvbench.prefill import LayerState
from kvbench.utils.checked import checked


@checked
class Fp8(Storage):
    """Keys and values in e4m3 (3 mantissa bits, at most 448) over whatever tokens a method kept.

    scale   what shares a float32 scale, for keys and values apart. unit: none, values beyond ±448 are cut off
            (vLLM's default). head, channel: the largest absolute value of the kept prompt tokens over 448; decoded
            tokens beyond it are cut off. token: each token's own.

    The relative error of an element is at most 2⁻⁴, near zero 2⁻¹⁰ of the scale. Tokens are quantised as they come.
    Source: vLLM's documentation of its quantised KV cache; there is no paper.
    """

    never_full = "quantised"

    takes_ragged = True

    scale: Scale = "head"

    @by_head
    def store(self, layer: LayerState, selection: Selection) -> LayerCache:
        keys, values = (Float8Sequence(selection.of(x), self.scale) for x in (layer.keys, layer.values))
        kept = selection.kept(layer, r3=layer.mean_share(keys.share, values.share))
        return CodedLayer(keys, values, layer.n, kept)

    def least_share(self, element_bytes: int, layer: KeptLayer | None = None) -> float:
        return coded_share(8, 8, element_bytes, layer)
