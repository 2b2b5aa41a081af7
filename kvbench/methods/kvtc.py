"""KVTC: keys and values in the components of their principal axes, with bits by variance, entropy coded."""

from typing import ClassVar

from kvbench.cache.base import LayerCache
from kvbench.cache.coded.layer import BlockwiseLayer
from kvbench.cache.coded.positions import KeyPositions
from kvbench.cache.coded.transform import TransformSequence
from kvbench.methods.facts import Launches, values
from kvbench.methods.selection import Selection
from kvbench.methods.storage.base import KeptLayer, Storage
from kvbench.methods.storage.by_head import by_head
from kvbench.ops.rope import fixed_rotation
from kvbench.prefill import LayerState
from kvbench.utils.checked import NonNegative, PositiveNumber, checked


@checked
class KVTC(Storage):
    """KV cache transform coding (Staniszewski & Łańcucki 2025, arXiv 2511.01815) over whatever tokens a method kept.

    A layer's keys before RoPE are projected, as one vector for each token, on the principal axes of these vectors, and
    its values on theirs. Each component has a whole number of bits, from 0 to 8, chosen for the smallest squared error
    within the budget, and equal steps between its smallest and its largest number. All codes are one DEFLATE stream;
    the bytes of a cache are those of the stream and of the tensors that decode it.

    bits     per number before entropy coding, which leaves fewer. The axes count among them with 16 bits a number, in a
             float32 model, too.
    sinks    first kept tokens that stay uncompressed.
    recent   last kept tokens that stay uncompressed, as decoded ones do.

    The paper computes axes and bits once, offline, from all layers of a model together, and gives groups of components
    one of a few types. Here each layer of a sample has its own, which count with its bytes and so are expensive for a
    short prompt: an axis takes as many numbers as a token has channels. The paper compresses caches that wait for a
    next turn; here they stay compressed, and every reading inflates the stream on the host.
    """

    short = values(sinks=2, recent=8)
    never_full = "quantised"
    # DEFLATE runs on the host: streams of keys and values are inflated whenever they are read. The division of bits is
    # the host's too, and decompositions of matrices wait for whether they converged.
    launches = Launches(decode=90, decode_waits=2, compress_waits=6)

    version: ClassVar[int] = 2  # 1 gave a float32 model's axes 32 bits, and so fewer of them bits than a 16-bit one's
    takes_ragged = True

    bits: PositiveNumber = 3.0
    sinks: NonNegative = 4
    recent: NonNegative = 128

    @by_head
    def store(self, layer: LayerState, selection: Selection) -> LayerCache:
        rope = fixed_rotation(layer.rope, "KVTC")
        how = (self.bits, self.sinks, self.recent)
        rows, k = selection.of(layer.keys), selection.count(layer)
        positions = KeyPositions(rope, selection.indices, k, layer.seen, rows.device)
        keys = TransformSequence(rows, *how, positions)
        values = TransformSequence(selection.of(layer.values), *how, None)
        kept = selection.kept(layer, r3=layer.mean_share(keys.share, values.share))
        return BlockwiseLayer(keys, values, layer.n, kept)

    def most_share(self, tokens: int) -> float:
        return 1 + 2 / tokens  # means and the bits of axes, as two raw tokens

    def least_share(self, element_bytes: int, layer: KeptLayer | None = None) -> float:
        """Counts only the uncompressed tokens: entropy coding may leave next to nothing of similar ones."""
        if layer is None or not layer.tokens:
            return 0.0
        return min((self.sinks + self.recent) / layer.tokens, 1.0)
