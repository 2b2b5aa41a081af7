"""TurboQuant: vectors rotated at random, then rounded channel by channel."""

from typing import Literal

from torch import Tensor

from kvbench.cache.coded.float8 import Float8Sequence
from kvbench.cache.coded.sequence import CodedSequence
from kvbench.errors import UserError
from kvbench.methods.facts import Launches, values
from kvbench.methods.storage.base import KeptLayer, coded_share
from kvbench.methods.storage.coded import CodedStorage
from kvbench.methods.turboquant.sequence import RotatedSequence, UniformSequence
from kvbench.ops.rotation import Rotation
from kvbench.utils.checked import NonNegative, checked


@checked
class TurboQuant(CodedStorage):
    """TurboQuant's quantiser of the smallest squared error (Zandieh et al. 2025, arXiv 2504.19874) for the tokens that
    a method keeps.

    A vector is stored as its length in float16 and its direction, rotated by a fixed orthogonal matrix, each channel
    rounded to the nearest of the 2^bits levels that are best for a normal number. Attention rotates queries and outputs
    instead of the stored vectors. Rotation and levels belong to the model, not to a cache.

    bits             bits of a key's channel.
    value_bits       bits of a value's channel; null: `bits`.
    keys             rotated; fp8: e4m3 with a scale of 1, whatever `bits`.
    values           rotated; uniform: each token in 2^bits equal steps from its smallest to its largest channel.
    rotation         haar; hadamard: two rounds of random signs and the transform; plain_hadamard: one round, no signs.
    seed             seed of the rotation.
    norm_correction  divide the length by the length of the rounded direction, so that a vector keeps its length.
    raw_layers       number of first layers, and of last layers, that stay uncompressed.

    There is no released code. vLLM's version has a plain Hadamard transform, rotates only keys, and has uniform values,
    norm_correction and two raw layers at each end. Neither has the paper's unbiased estimate of inner products, which
    adds a sketch of the residual.
    """

    short = values(raw_layers=1)

    bits: Literal[2, 3, 4] = 4
    value_bits: Literal[2, 3, 4] | None = None
    keys: Literal["rotated", "fp8"] = "rotated"
    values: Literal["rotated", "uniform"] = "rotated"
    rotation: Rotation = "haar"
    seed: NonNegative = 0
    norm_correction: bool = False
    raw_layers: NonNegative = 0

    @property
    def launches(self) -> Launches:
        """Operations of torch make and read the codes of new tokens; two of them keep infinity from becoming an
        ordinary number. Codes of 3 bits and uniform codes need more of them."""
        more = self.values == "uniform" or 3 in (self.bits, self.value_bits)
        return Launches(decode=86 if more else 70)

    def codes(self, index: int, num_layers: int) -> bool:
        return self.raw_layers <= index < num_layers - self.raw_layers

    def sequence(self, which: Literal["k", "v"], rows: Tensor) -> CodedSequence:
        if which == "v":
            bits = self.value_bits or self.bits
            return UniformSequence(rows, bits) if self.values == "uniform" else self._rotated(rows, bits)
        if rows.shape[2] % 8:
            raise UserError(f"TurboQuant packs channels in eights, but this model has {rows.shape[2]} per head")
        return Float8Sequence(rows, "unit") if self.keys == "fp8" else self._rotated(rows, self.bits)

    def least_share(self, element_bytes: int, layer: KeptLayer | None = None) -> float:
        if layer is not None and not self.codes(layer.index, layer.num_layers):
            return 1.0
        number = 0 if layer is None else 16 / layer.head_dim  # a token's length, or its scale and minimum, in float16
        keys = 8 if self.keys == "fp8" else self.bits + number
        values = (self.value_bits or self.bits) + number * (2 if self.values == "uniform" else 1)
        return coded_share(keys, values, element_bytes, layer)

    def _rotated(self, rows: Tensor, bits: int) -> RotatedSequence:
        return RotatedSequence(rows, bits, self.rotation, self.seed, self.norm_correction)
