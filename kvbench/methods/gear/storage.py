"""GEAR: rounded keys and values, their outliers, and a low-rank part of the rounding errors."""

from typing import Literal

from kvbench.cache.base import LayerCache
from kvbench.cache.coded.layer import BlockwiseLayer
from kvbench.errors import UserError
from kvbench.methods.facts import Launches, values
from kvbench.methods.gear.sequence import GearSequence, KeyPart, Recipe, ValuePart
from kvbench.methods.selection import Selection
from kvbench.methods.storage.base import KeptLayer, Storage, coded_share
from kvbench.methods.storage.by_head import by_head
from kvbench.prefill import LayerState
from kvbench.utils.checked import Fraction, NonNegative, Positive, checked


@checked
class GEAR(Storage):
    """GEAR (Kang et al. 2024, arXiv 2403.05527) for the tokens that a method keeps: X ≈ D + L + S (§3).

    S: the largest and smallest numbers of each channel of the keys, and of each token's values in all heads, stored
    with their places. D: the other numbers in equal steps, by channel for keys and by token for values, with the mean
    instead of outliers. L: X - D - S in rank `rank` for each head, by three rounds of subspace iteration.

    bits         bits of a code of D.
    group        tokens of a channel, and channels of a token, that share a scale and a minimum; null: all (KCVT).
    outliers     share of the numbers in S, half of it at each end.
    rank         rank of L for the prompt; 0: no L.
    later_rank   rank of L for each `buffer` decoded tokens.
    buffer       decoded tokens that stay uncompressed until they are compressed together.

    Prompt tokens beyond a multiple of `group` wait in the buffer. Places have 16 bits, all other numbers except codes
    the model's dtype. The released code takes as many outliers of a channel as of a token, whatever the prompt's
    length; here `outliers` is a share of the channel's tokens, as in the paper.
    """

    short = values(group=8, buffer=8)
    never_full = "quantised"
    launches = Launches(decode=90)  # restores three parts, a block of rows at a time

    takes_ragged = True

    bits: Literal[2, 4] = 4
    group: Positive | None = None
    outliers: Fraction = 0.02
    rank: NonNegative = 4
    later_rank: NonNegative = 2
    buffer: Positive = 64

    def __post_init__(self) -> None:
        if self.group is not None and self.buffer % self.group:
            raise UserError(f"buffer={self.buffer} must be a multiple of group={self.group}")

    @by_head
    def store(self, layer: LayerState, selection: Selection) -> LayerCache:
        heads, width = selection.heads(layer), layer.keys.shape[2]
        if width % 8 or (self.group is not None and heads * width % self.group):
            raise UserError(
                f"GEAR packs channels in eights, and group={self.group} must divide the channels of a token: a token "
                f"has {heads} times {width}"
            )
        prompt, later = (Recipe(self.bits, self.group, self.outliers, rank) for rank in (self.rank, self.later_rank))
        keys = GearSequence(selection.of(layer.keys), KeyPart, prompt, later, self.buffer)
        values = GearSequence(selection.of(layer.values), ValuePart, prompt, later, self.buffer)
        kept = selection.kept(layer, r3=layer.mean_share(keys.share, values.share))
        return BlockwiseLayer(keys, values, layer.n, kept)

    def most_share(self, tokens: int) -> float:
        return 1 + 6 / tokens  # low-rank parts are as large as six raw tokens

    def least_share(self, element_bytes: int, layer: KeptLayer | None = None) -> float:
        """The share of the codes and, if the layer is known, of the other parts."""
        if layer is None or not layer.tokens:
            return coded_share(self.bits, self.bits, element_bytes, layer)
        tokens, token = layer.tokens, layer.heads * layer.head_dim
        coded = tokens - tokens % (self.group or 1)  # keys that are compressed
        keys = self._bytes(coded, token, layer, element_bytes) if coded else 0.0
        values = self._bytes(token, tokens, layer, element_bytes)
        return (keys + (tokens - coded) * token * element_bytes + values) / (2 * tokens * token * element_bytes)

    def _bytes(self, numbers: int, vectors: int, layer: KeptLayer, element_bytes: int) -> float:
        """Bytes of a prompt's compressed keys or values: codes, scales and outliers of `vectors` vectors of `numbers`
        numbers, and the low-rank part of each head."""
        scales = 2 * vectors * numbers // (self.group or numbers)
        outliers = 2 * vectors * int(numbers * self.outliers / 2 + 1e-9)
        rows = numbers * vectors // (layer.heads * layer.head_dim)
        low_rank = layer.heads * min(self.rank, rows, layer.head_dim) * (rows + layer.head_dim)
        codes = numbers * vectors * self.bits / 8
        return codes + (scales + low_rank) * element_bytes + outliers * (element_bytes + 2)
