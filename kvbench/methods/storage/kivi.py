"""KIVI: keys quantised per channel, values per token."""

from abc import abstractmethod
from typing import Literal

import torch
from torch import Tensor

from kvbench.cache.base import BLOCK, Growing, LayerCache
from kvbench.cache.sequence import Sequence, SequenceLayer
from kvbench.errors import UserError
from kvbench.methods.selection import Selection
from kvbench.methods.storage.base import Storage
from kvbench.ops.quantise import CHANNELS, TOKENS, Quantiser
from kvbench.prefill import LayerState
from kvbench.utils.checked import Positive, checked


class QuantisedSequence(Sequence):
    """Older rows quantised, the `residual` rows at the end as they are.

    Prefill and decoding are the same operation: rows join the residual, and those that are due leave it.
    """

    axis: int
    room: int = BLOCK  # rows that `parts` make room for at a time

    def __init__(self, rows: Tensor, bits: int, group: int, residual: int):
        """rows [heads, len, head_dim] are copied, never kept."""
        self.quantiser = Quantiser(bits, group, self.axis)
        self.limit = residual
        due = self.due(rows.shape[1])
        self.parts = [Growing(part, self.room) for part in self.quantiser(rows[:, :due])]
        self.residual = rows[:, due:].clone()

    @abstractmethod
    def due(self, length: int) -> int:
        """How many of the `length` oldest unquantised rows are to be quantised."""

    def append(self, rows: Tensor) -> None:
        joined = torch.cat([self.residual, rows], dim=1)
        due = self.due(joined.shape[1])
        if due:
            for store, part in zip(self.parts, self.quantiser(joined[:, :due]), strict=True):
                store.append(part)
        self.residual = joined[:, due:].clone()  # a view would hold on to what was quantised

    def read(self) -> Tensor:
        return torch.cat([self.quantiser.restore(*(part.view for part in self.parts)), self.residual], dim=1)

    def tensors(self) -> list[Tensor]:
        return [*(part.buffer for part in self.parts), self.residual]

    @property
    def share(self) -> float:
        quantised, raw = self.parts[0].length, self.residual.shape[1]
        if quantised + raw == 0:
            return 1.0
        element = 8 * self.residual.element_size()
        bits = quantised * self.quantiser.bits_per_element(element) + raw * element
        return bits / (element * (quantised + raw))


class QuantisedKeys(QuantisedSequence):
    """Per channel, over groups of consecutive tokens; quantised in blocks, so 0 … residual - 1 stay as they are."""

    axis = TOKENS
    room = 1  # a whole block arrives at once, so spare room would be dead bytes

    def due(self, length: int) -> int:
        return length - length % self.limit


class QuantisedValues(QuantisedSequence):
    """Per token, over groups of channels; the last `residual` stay as they are, one leaves for each that comes."""

    axis = CHANNELS

    def due(self, length: int) -> int:
        return max(0, length - self.limit)


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
    """

    bits: Literal[2, 4, 8] = 4
    group: Positive = 32
    residual: Positive = 128

    def __post_init__(self):
        if self.group * self.bits % 8:
            raise UserError(f"group={self.group} codes of {self.bits} bits do not fill whole bytes")
        if self.residual % self.group:
            raise UserError(f"residual={self.residual} must be a multiple of group={self.group}")

    def store(self, layer: LayerState, selection: Selection) -> LayerCache:
        keys = self.key_sequence(selection.of(layer.keys))
        values = self.value_sequence(selection.of(layer.values))
        kept = selection.kept(layer, r3=(keys.share + values.share) / 2)
        return SequenceLayer(keys, values, selection.heads(layer), layer.n, kept)

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
