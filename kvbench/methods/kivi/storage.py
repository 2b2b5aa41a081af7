"""KIVI: keys quantised per channel, values per token."""

from itertools import chain
from typing import NamedTuple, TypeVar

from torch import Tensor

from kvbench.cache.base import LayerCache
from kvbench.cache.quantised.sequence import QuantisedKeys, QuantisedSequence, QuantisedValues
from kvbench.errors import UserError
from kvbench.methods.facts import values
from kvbench.methods.kivi.layer_bits import Bits, LayerBits, read_layer_bits
from kvbench.methods.kivi.layer_cache import QuantisedLayer
from kvbench.methods.kivi.ragged_cache import OlderRows, RaggedQuantisedLayer
from kvbench.methods.selection import Selection, gather
from kvbench.methods.storage.base import KeptLayer, Storage
from kvbench.ops.quantise import CHANNELS, TOKENS, Quantiser
from kvbench.prefill import LayerState
from kvbench.utils.checked import Positive, checked

Kind = TypeVar("Kind", bound=QuantisedSequence)


class Sequences(NamedTuple):
    keys: QuantisedKeys
    values: QuantisedValues


@checked
class Kivi(Storage):
    """KIVI (Liu et al. 2024, arXiv 2402.02750; layout of the released code) for the tokens that a method keeps.

    bits      bits per code; a byte holds 8 / bits codes.
    group     elements that share a scale and a minimum: consecutive kept tokens of one channel for keys,
              channels of one token for values. Scale and minimum have the model's dtype: 4-bit codes in groups of 32
              take 5 bits per element in a 16-bit model and 6 in a float32 model.
    residual  recent tokens that stay uncompressed. Keys are quantised in blocks of `residual`, so the last 0 to
              residual - 1 keys are raw; the last `residual` values are always raw.

    key_bits, value_bits   bits of keys and values if they differ from `bits`.
    layers_file            a YAML file with the bits of each layer, like KVTuner's (Li et al. 2025) presets: a mapping
                           from the layer's number to nbits_key and nbits_value. It replaces the other bits.

    The LongBench setting has bits 2 or 4, group 32 and residual 128; SimLayerKV used 4, 32, 32. Groups are formed on
    the kept tokens of a stored head as one contiguous sequence. The first token comes from unquantised attention. KIVI
    is FullKV at no budget, but with a residual that is never filled it is.

    If heads keep different numbers of tokens, the last m tokens of each head are stored in this way, where m is the
    shortest head's length, so that all heads quantise a block at the same time. Older tokens are quantised, too: their
    groups end before the last m tokens, and the first group of a head may be incomplete.
    """

    short = values(residual=32)
    never_full = "quantised"

    takes_ragged = True

    bits: Bits = 4
    group: Positive = 32
    residual: Positive = 128
    key_bits: Bits | None = None
    value_bits: Bits | None = None
    layers_file: str | None = None

    def __post_init__(self) -> None:
        if self.layers_file is not None and (self.key_bits or self.value_bits):
            raise UserError(
                f"layers_file has the bits of each layer: key_bits={self.key_bits} and value_bits={self.value_bits} "
                "must both be null beside it"
            )
        uniform = LayerBits(self.key_bits or self.bits, self.value_bits or self.bits)
        self._by_layer = None if self.layers_file is None else read_layer_bits(self.layers_file)
        self._uniform = uniform
        for bits in {*chain(*(self._by_layer or [uniform]))}:
            if self.group * bits % 8:
                raise UserError(f"group={self.group} codes of {bits} bits do not fill whole bytes")
        if self.residual % self.group:
            raise UserError(f"residual={self.residual} must be a multiple of group={self.group}")

    def least_share(self, element_bytes: int, layer: KeptLayer | None = None) -> float:
        """Exact for a known layer whose heads keep equally many tokens; otherwise for the fewest bits of any layer."""
        element, tokens = 8 * element_bytes, layer and layer.tokens
        raw = (tokens % self.residual, min(tokens, self.residual)) if tokens else (0, 0)
        count = tokens or 1

        def share(bits: int, axis: int, raw: int) -> float:
            coded = min(Quantiser(bits, self.group, axis).bits_per_element(element) / element, 1.0)
            return (coded * (count - raw) + raw) / count

        pairs = [self._uniform]
        if self._by_layer is not None:
            pairs = [self._by_layer[layer.index]] if layer and layer.index < len(self._by_layer) else self._by_layer
        shares = [(share(pair.keys, TOKENS, raw[0]), share(pair.values, CHANNELS, raw[1])) for pair in pairs]
        return min(map(min, shares)) if layer is None else min(map(sum, shares)) / 2

    def store(self, layer: LayerState, selection: Selection) -> LayerCache:
        if selection.ragged:
            return self._store_ragged(layer, selection)
        keys, values = self._sequences(layer, selection.of(layer.keys), selection.of(layer.values))
        kept = selection.kept(layer, r3=layer.mean_share(keys.share, values.share))
        return QuantisedLayer(keys, values, layer.n, kept)

    def _store_ragged(self, layer: LayerState, selection: Selection) -> RaggedQuantisedLayer:
        """One wait for the device: for the numbers of tokens."""
        counts, n = selection.counts, layer.n
        last = min(counts)
        recent, before = selection.parted(last)
        more = [count - last for count in counts]
        group = len(counts) // layer.num_key_value_heads
        rows = before // (group * n) * n + before % n  # indices among the rows of all KV heads
        sequences = self._sequences(layer, gather(layer.keys, recent), gather(layer.values, recent))
        older = (
            OlderRows(layer.keys.flatten(0, 1)[rows], more, sequences.keys.quantiser),
            OlderRows(layer.values.flatten(0, 1)[rows], more, sequences.values.quantiser),
        )
        size = sum(s.share * len(counts) * last + o.raw_rows for s, o in zip(sequences, older, strict=True))
        kept = selection.kept(layer, r3=size / max(2 * sum(counts), 1))
        return RaggedQuantisedLayer(*sequences, older, n, kept)

    def key_sequence(self, rows: Tensor, recent: bool = True) -> QuantisedKeys:
        """Keys [heads, len, head_dim]. recent=False: not the end of a text; only an incomplete last group stays raw."""
        return self._sequence(QuantisedKeys, rows, self._uniform.keys, self.residual if recent else self.group)

    def value_sequence(self, rows: Tensor, recent: bool = True) -> QuantisedValues:
        """Values [heads, len, head_dim]. recent=False: not the end of a text; no value stays raw."""
        return self._sequence(QuantisedValues, rows, self._uniform.values, self.residual if recent else 0)

    def bits_of(self, layer: LayerState) -> LayerBits:
        """The bits of the layer. Raises UserError if the file has another number of layers than the model."""
        if self._by_layer is None:
            return self._uniform
        if len(self._by_layer) != layer.num_layers:
            raise UserError(
                f"layers_file={self.layers_file} has the bits of {len(self._by_layer)} layers, "
                f"but this model has {layer.num_layers}"
            )
        return self._by_layer[layer.index]

    def _sequences(self, layer: LayerState, keys: Tensor, values: Tensor) -> Sequences:
        """Keys and values [heads, len, head_dim] of the layer, with its bits."""
        key_bits, value_bits = self.bits_of(layer)
        return Sequences(
            self._sequence(QuantisedKeys, keys, key_bits, self.residual),
            self._sequence(QuantisedValues, values, value_bits, self.residual),
        )

    def _sequence(self, kind: type[Kind], rows: Tensor, bits: int, residual: int) -> Kind:
        if rows.shape[-1] % self.group:
            raise UserError(
                f"group={self.group} does not divide this model's head dimension of {rows.shape[-1]}: "
                "KIVI quantises a token's value in groups of channels"
            )
        return kind(rows, bits, self.group, residual)
