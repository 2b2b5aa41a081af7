"""FP8: keys and values in eight-bit floating point, as in vLLM's quantised cache."""

from typing import Literal

from torch import Tensor

from kvbench.cache.coded.float8 import Float8Sequence, Scale
from kvbench.methods.storage.base import KeptLayer, coded_share
from kvbench.methods.storage.coded import CodedStorage
from kvbench.utils.checked import checked


@checked
class Fp8(CodedStorage):
    """Keys and values in e4m3 (3 mantissa bits, at most 448), for the tokens that a method keeps.

    scale   elements that share a float32 scale, separately for keys and values. unit: no scale, values beyond ±448 are
            clipped (vLLM's default). head, channel: the largest absolute value of the kept prompt tokens over 448;
            larger values of decoded tokens are clipped. token: a scale per token.

    The relative error of an element is at most 2⁻⁴, near zero the error is at most 2⁻¹⁰ of the scale.
    Source: vLLM's documentation of its quantised KV cache; there is no paper.
    """

    scale: Scale = "head"

    def sequence(self, which: Literal["k", "v"], rows: Tensor) -> Float8Sequence:
        return Float8Sequence(rows, self.scale)

    def least_share(self, element_bytes: int, layer: KeptLayer | None = None) -> float:
        return coded_share(8, 8, element_bytes, layer)
