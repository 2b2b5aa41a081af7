"""FP8: keys and values in eight-bit floating point, as in vLLM's quantised cache."""

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
    """Keys and values in e4m3 (3 mantissa bits, at most 448), for the tokens that a method keeps.

    scale   elements that share a float32 scale, separately for keys and values. unit: no scale, values beyond ±448 are
            clipped (vLLM's default). head, channel: the largest absolute value of the kept prompt tokens over 448;
            larger values of decoded tokens are clipped. token: a scale per token.

    The relative error of an element is at most 2⁻⁴, near zero the error is at most 2⁻¹⁰ of the scale. Tokens are
    quantised when they are appended.
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
