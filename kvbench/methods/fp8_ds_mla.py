"""FP8 for latents, as in vLLM's cache format `fp8_ds_mla`: rotated keys keep the model's dtype."""

from torch import Tensor

from kvbench.cache.base import Growing, LayerCache
from kvbench.cache.coded.float8 import SMALLEST
from kvbench.cache.coded.sequence import CodedSequence
from kvbench.cache.sequence import RawSequence, SequenceLayer
from kvbench.errors import UserError
from kvbench.methods.selection import Selection
from kvbench.methods.storage.base import KeptLayer, Storage, coded_share
from kvbench.methods.storage.by_head import by_head
from kvbench.ops.float8 import E4M3, LARGEST, from_float8
from kvbench.prefill import LayerState
from kvbench.utils.checked import Positive, checked


@checked
class Fp8Latents(Storage):
    """Values in e4m3, with a float32 scale for every `tile` channels of a token; keys in the model's dtype.

    A latent of DeepSeek-V3 takes 512 bytes and four scales, its rotated key 128 bytes in 16 bits: 656 bytes per token
    and layer instead of 1,152. Models without latents hold the values of their heads in this form. Values narrower than
    `tile` have one scale.

    tile   channels that share a scale: their largest absolute value over 448.

    Source: vLLM's `fp8_ds_mla`, the cache of its sparse attention for DeepSeek-V3.2; there is no paper.
    """

    never_full = "quantised"

    takes_ragged = True

    tile: Positive = 128

    @by_head
    def store(self, layer: LayerState, selection: Selection) -> LayerCache:
        keys = RawSequence(selection.of(layer.keys).clone())
        values = TiledFloat8Sequence(selection.of(layer.values), self.tile)
        kept = selection.kept(layer, r3=layer.mean_share(keys.share, values.share))
        return SequenceLayer(keys, values, len(values.parts[0].buffer), layer.n, kept)

    def least_share(self, element_bytes: int, layer: KeptLayer | None = None) -> float:
        return coded_share(8 * element_bytes, 8 + 32 / self.tile, element_bytes, layer)


class TiledFloat8Sequence(CodedSequence):
    """Rows in e4m3, with a scale for each `tile` channels of a token.

    Raises UserError if `tile` does not divide the width.
    """

    def __init__(self, rows: Tensor, tile: int):
        """rows [heads, len, width]."""
        self.dtype, (self.heads, _, self.width) = rows.dtype, rows.shape
        self.tile = min(tile, self.width)
        if self.width % self.tile:
            raise UserError(f"tile={tile} does not divide this model's values of {self.width} channels")
        self.parts = [Growing(part) for part in self.encoded(rows)]

    def encoded(self, rows: Tensor) -> list[Tensor]:
        tiles = rows.float().unflatten(-1, (-1, self.tile))
        scales = tiles.abs().amax(dim=-1).div_(LARGEST).clamp_(min=SMALLEST)  # [heads, t, tiles]; NaN where a number is
        return [(tiles / scales[..., None]).flatten(-2).to(E4M3), scales]

    def decoded(self, tokens: slice) -> Tensor:
        codes, scales = (part.buffer[:, tokens] for part in self.parts)
        return (from_float8(codes).unflatten(-1, (-1, self.tile)) * scales[..., None]).flatten(-2)
