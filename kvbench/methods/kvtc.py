"""KVTC: principal components of keys and values, with bits by variance and entropy coding."""

from typing import ClassVar

from kvbench.cache.base import LayerCache
from kvbench.cache.coded.layer import BlockwiseLayer
from kvbench.cache.coded.transform import TransformSequence
from kvbench.methods.facts import Launches, values
from kvbench.methods.selection import Selection
from kvbench.methods.storage.base import KeptLayer, Storage
from kvbench.methods.storage.by_head import by_head
from kvbench.methods.storage.key_positions import key_positions
from kvbench.prefill import LayerState
from kvbench.utils.checked import NonNegative, PositiveNumber, checked


@checked
class KVTC(Storage):
    """KV cache transform coding (Staniszewski & Łańcucki 2025, arXiv 2511.01815) for the tokens that a method keeps.

    A layer's keys before RoPE form one vector per token, and these vectors are projected on their principal axes; the
    layer's values likewise. Each component has a whole number of bits, from 0 to 8, chosen for the smallest squared
    error within the budget, and equal steps between its smallest and its largest number. All codes form one DEFLATE
    stream. The cache counts the bytes of the stream and of the tensors that decode it.

    bits     bits per number before entropy coding, which makes them fewer. They include the axes, 16 bits per number,
             also in a float32 model.
    sinks    first kept tokens that stay uncompressed.
    recent   last kept tokens that stay uncompressed. Decoded tokens stay uncompressed, too.

    The paper computes axes and bits once, offline, from all layers of a model together, and gives each group of
    components one of a few types. Here each layer of a sample has its own axes and bits, which are counted and so are
    expensive for a short prompt: an axis takes as many numbers as a token has channels. The paper compresses caches
    that wait for a next turn; here caches stay compressed, and every read inflates the stream on the host.
    """

    short = values(sinks=2, recent=8)
    never_full = "quantised"
    # DEFLATE runs on the host: streams of keys and values are inflated whenever they are read. Bits are allocated on
    # the host, too, and decompositions of matrices wait for the device to report convergence.
    launches = Launches(decode=90, decode_waits=2, compress_waits=6)

    version: ClassVar[int] = 2  # 1 gave a float32 model's axes 32 bits, and so fewer of them bits than a 16-bit one's
    takes_ragged = True

    bits: PositiveNumber = 3.0
    sinks: NonNegative = 4
    recent: NonNegative = 128

    @by_head
    def store(self, layer: LayerState, selection: Selection) -> LayerCache:
        positions = key_positions(layer, selection, "KVTC")
        how = (self.bits, self.sinks, self.recent)
        keys = TransformSequence(selection.of(layer.keys), *how, positions)
        values = TransformSequence(selection.of(layer.values), *how, None)
        kept = selection.kept(layer, r3=layer.mean_share(keys.share, values.share))
        return BlockwiseLayer(keys, values, layer.n, kept)

    def most_share(self, tokens: int) -> float:
        return 1 + 2 / tokens  # means and bits of axes are as large as two raw tokens

    def least_share(self, element_bytes: int, layer: KeptLayer | None = None) -> float:
        """Counts only the uncompressed tokens: entropy coding may shrink similar tokens to almost no bytes."""
        if layer is None or not layer.tokens:
            return 0.0
        return min((self.sinks + self.recent) / layer.tokens, 1.0)
