"""A method from outside that acts while decoding: attention sums of the window decide every 8 tokens."""

from dataclasses import dataclass, field

from kvbench.methods import DecodeCompression, Method, Needs, Selection, interval_layer, top_indices, with_window

WINDOW = 8


@dataclass
class WindowWhileDecoding(Method):
    """The last 8 tokens stay, and of the others those with most attention from the last 8 queries."""

    decode_compression: DecodeCompression = field(default_factory=lambda: DecodeCompression(every=8))

    def __post_init__(self):
        self.takes_fractions, self.ratio_of, self.compress_at = self.decode_compression.protocol

    @property
    def needs(self):
        return Needs(window=WINDOW)

    @property
    def minimum_budget(self):
        return WINDOW + 1

    def compress_layer(self, layer, index, num_layers, budget):
        return interval_layer(self.decode_compression, layer, budget, self.select, self.keep, self.needs)

    def select(self, layer, budget):
        indices = self.keep(layer, budget, layer.n)
        return Selection.everything(layer) if indices is None else Selection(indices, budget)

    def keep(self, layer, target, seen):
        target = max(target, self.minimum_budget)
        if target >= layer.n:
            return None
        votes = layer.window_votes(WINDOW)  # [num_attention_heads, n]
        votes = votes.unflatten(0, (layer.num_key_value_heads, -1)).mean(dim=1)
        return with_window(top_indices(votes[:, :-WINDOW], target - WINDOW), layer.n, WINDOW)
