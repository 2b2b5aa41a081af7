"""KVQuant: keys before RoPE by channel, values by token, uneven levels, and outliers apart."""

from typing import Literal

from kvbench.cache.base import LayerCache
from kvbench.cache.coded.layer import BlockwiseLayer
from kvbench.errors import UserError
from kvbench.methods.facts import Launches
from kvbench.methods.kvquant.sequence import NonUniformKeys, NonUniformValues
from kvbench.methods.selection import Selection
from kvbench.methods.storage.base import KeptLayer, Storage, coded_share
from kvbench.methods.storage.by_head import by_head
from kvbench.methods.storage.key_positions import key_positions
from kvbench.prefill import LayerState
from kvbench.utils.checked import Fraction, NonNegative, checked


@checked
class KVQuant(Storage):
    """KVQuant (Hooper et al. 2024, arXiv 2401.18079) for the tokens that a method keeps.

    A vector is one token's keys, or values, in all heads of a layer. Keys are coded before RoPE, with a scale and an
    offset for each channel; values have a scale and an offset for each token (§3.1, §3.2). Codes name levels between -1
    and 1 that k-means fits to a layer's keys or values (§3.3). The largest and the smallest numbers of a vector are
    stored apart, with their channels (§3.4), and the first tokens stay uncompressed (§3.5).

    bits       bits of a code.
    outliers   share of a vector's numbers that are stored apart, half of it on each side, at least one number per side.
    sinks      first kept tokens that stay uncompressed; their codes are stored, too, but not read.

    The paper fits levels and channels offline on 16 sequences, weighted by Fisher information; here they come from the
    kept prompt of each sample, unweighted, and their bytes are counted: levels in float32, the other numbers in the
    model's dtype, channels and positions in 16 bits below 32,769. The paper's correction of means and deviations
    (Q-Norm) is left out. If heads keep different numbers of tokens, a vector is one token in one head.
    """

    never_full = "quantised"
    launches = Launches(decode=180)  # restores levels and outliers, a block of rows at a time

    takes_ragged = True

    bits: Literal[2, 3, 4] = 4
    outliers: Fraction = 0.01
    sinks: NonNegative = 1

    @by_head
    def store(self, layer: LayerState, selection: Selection) -> LayerCache:
        positions = key_positions(layer, selection, "KVQuant")
        if layer.keys.shape[2] % 8:
            raise UserError(f"KVQuant packs channels in eights, but this model has {layer.keys.shape[2]} per head")
        how = (self.bits, self.outliers, self.sinks)
        keys = NonUniformKeys(selection.of(layer.keys), *how, positions)
        values = NonUniformValues(selection.of(layer.values), *how)
        kept = selection.kept(layer, r3=layer.mean_share(keys.share, values.share))
        return BlockwiseLayer(keys, values, layer.n, kept)

    def most_share(self, tokens: int) -> float:
        return 1 + 2 / tokens  # scales, offsets and levels are as large as two raw tokens

    def least_share(self, element_bytes: int, layer: KeptLayer | None = None) -> float:
        return coded_share(self.bits, self.bits, element_bytes, layer)  # outliers, scales and levels come on top
