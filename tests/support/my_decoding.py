"""A method that acts while decoding: keep the tokens with large values."""

from dataclasses import dataclass, field

from kvbench.methods import DecodeCompression, Method, Needs, Selection, interval_layer, top_indices, with_window


@dataclass
class LargeValues(Method):
    """Keeps the last tokens and the other tokens with the largest values: after prefill and while decoding."""

    recent: int = 8
    decode_compression: DecodeCompression = field(default_factory=lambda: DecodeCompression(every=16))

    def __post_init__(self):
        self.takes_fractions, self.ratio_of, self.compress_at = self.decode_compression.protocol

    @property
    def minimum_budget(self):
        return self.recent + 1

    def compress_layer(self, layer, index, num_layers, budget):
        return interval_layer(self.decode_compression, layer, budget, self.select, self.keep, Needs())

    def select(self, layer, budget):
        """The tokens of the prompt to keep after prefill."""
        indices = self.keep(layer, budget, layer.n)
        return Selection.everything(layer) if indices is None else Selection(indices, budget)

    def keep(self, layer, target, seen):
        """The stored tokens to keep while decoding, [num_key_value_heads, target], ascending; None: all."""
        target = max(target, self.minimum_budget)
        if target >= layer.n:
            return None
        norms = layer.values.float().norm(dim=-1)  # [num_key_value_heads, n]
        return with_window(top_indices(norms[:, : -self.recent], target - self.recent), layer.n, self.recent)
