"""KIVI: keys quantised per channel, values per token."""

from typing import Literal

from torch import Tensor

from kvbench.cache.base import LayerCache
from kvbench.cache.quantised import QuantisedKeys, QuantisedLayer, QuantisedValues
from kvbench.cache.ragged_quantised import OlderRows, RaggedQuantisedLayer
from kvbench.errors import UserError
from kvbench.methods.ragged_selection import RaggedSelection
from kvbench.methods.selection import Selection, gather
from kvbench.methods.storage.base import Storage
from kvbench.prefill import LayerState
from kvbench.utils.checked import Positive, checked


@checked
class Kivi(Storage):
    """KIVI (Liu et al. 2024; layout of the released code) over whatever tokens a method kept.

    bits      per code; packed, so a byte holds 8 / bits of them.
    group     elements that share a scale and a minimum: consecutive kept tokens of one channel for keys,
              channels of one token for values. Both are in the model's dtype: 5 bits per element for 4 bit
              codes in groups of 32 of a 16 bit model, 6 in a float32 model.
    residual  recent tokens that stay as they are. Keys leave in blocks of `residual`, so between none and
              residual - 1 of them are raw; of the values always the last `residual`.

    bits 2 and 4, group 32, residual 128 is the LongBench setting; SimLayerKV used 4, 32, 32. Groups are formed
    on the kept tokens as one contiguous sequence, per stored head. The first token comes from unquantised
    attention. There is no budget at which KIVI is FullKV, but a residual that nothing outgrows is.

    Where heads keep different numbers of tokens, this holds for the last m of each, m those of the shortest head, so
    that blocks leave in all heads at once; older tokens are quantised, too. Their groups end where the last m begin:
    of each head the first one may be incomplete.
    """

    takes_ragged = True

    bits: Literal[2, 4, 8] = 4
    group: Positive = 32
    residual: Positive = 128

    def __post_init__(self):
        if self.group * self.bits % 8:
            raise UserError(f"group={self.group} codes of {self.bits} bits do not fill whole bytes")
        if self.residual % self.group:
            raise UserError(f"residual={self.residual} must be a multiple of group={self.group}")

    def store(self, layer: LayerState, selection: Selection | RaggedSelection) -> LayerCache:
        if isinstance(selection, RaggedSelection):
            return self._store_ragged(layer, selection)
        keys = self.key_sequence(selection.of(layer.keys))
        values = self.value_sequence(selection.of(layer.values))
        kept = selection.kept(layer, r3=(keys.share + values.share) / 2)
        return QuantisedLayer(keys, values, layer.n, kept)

    def _store_ragged(self, layer: LayerState, selection: RaggedSelection) -> RaggedQuantisedLayer:
        """One wait for the device: for the numbers of tokens."""
        counts, n = selection.counts, layer.n
        last = min(counts)
        recent, before = selection.parted(last)
        more = [count - last for count in counts]
        group = len(counts) // layer.num_key_value_heads
        rows = before // (group * n) * n + before % n  # among those of all KV heads
        sequences = self.key_sequence(gather(layer.keys, recent)), self.value_sequence(gather(layer.values, recent))
        older = tuple(
            OlderRows(x.flatten(0, 1)[rows], more, sequence.quantiser)
            for x, sequence in zip((layer.keys, layer.values), sequences, strict=True)
        )
        size = sum(s.share * len(counts) * last + o.raw_rows for s, o in zip(sequences, older, strict=True))
        kept = selection.kept(layer, r3=size / (2 * sum(counts)))
        return RaggedQuantisedLayer(*sequences, older, n, kept)

    def key_sequence(self, rows: Tensor, recent: bool = True) -> QuantisedKeys:
        """Keys [heads, len, head_dim]. recent=False: no end of a text, only an incomplete last group stays raw."""
        self._check(rows)
        return QuantisedKeys(rows, self.bits, self.group, self.residual if recent else self.group)

    def value_sequence(self, rows: Tensor, recent: bool = True) -> QuantisedValues:
        """Values [heads, len, head_dim]. recent=False: no end of a text, none stays raw."""
        self._check(rows)
        return QuantisedValues(rows, self.bits, self.group, self.residual if recent else 0)

    def _check(self, rows: Tensor) -> None:
        if rows.shape[-1] % self.group:
            raise UserError(
                f"group={self.group} does not divide this model's head dimension of {rows.shape[-1]}: "
                "KIVI quantises a token's value in groups of channels"
            )
