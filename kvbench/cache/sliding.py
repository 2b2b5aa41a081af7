"""StreamingLLM's own cache: sinks and a ring of recent tokens, of constant size while decoding."""

import torch
from torch import Tensor

from kvbench.attention import dense_attention
from kvbench.cache.base import Growing, LayerCache
from kvbench.ratio import Kept
from kvbench.rope import Rope


class SlidingLayer(LayerCache):
    """At most `budget` tokens: the first `sinks`, and the most recent ones in a ring that overwrites itself.

    With `rope`, positions roll as in the official code, where a key's position is its slot. Only relative
    positions matter, so instead of rotating everything down, the sinks move up by the number of evicted
    tokens to sit right before the recent ones: the same attention, and untouched bits while all fits.
    """

    batches = True

    def __init__(self, keys: Tensor, values: Tensor, seen: int, kept: Kept, budget: int, sinks: int, rope: Rope | None):
        """keys, values [num_key_value_heads, len, head_dim] in order of position, len <= budget."""
        super().__init__(seen, kept)
        self.k, self.v = Growing(keys[None].clone()), Growing(values[None].clone())  # written in place
        self.budget, self.sinks, self.rope = budget, sinks, rope
        self.sink_keys: Tensor | None = None  # as prefill left them, from the first eviction on
        self.evicted = seen - keys.shape[1]
        self.oldest = 0  # ring slot of the oldest recent token
        self._roll()

    def tensors(self) -> list[Tensor]:
        return [self.k.buffer, self.v.buffer] + ([] if self.sink_keys is None else [self.sink_keys])

    def append(self, keys: Tensor, values: Tensor) -> None:
        if self.k.length < self.budget:
            self.k.append(keys)
            self.v.append(values)
            return
        slot = self.sinks + self.oldest
        self.k.view[:, :, slot] = keys[:, :, 0]
        self.v.view[:, :, slot] = values[:, :, 0]
        self.oldest = (self.oldest + 1) % (self.budget - self.sinks)
        self.evicted += 1
        self._roll()

    def attend(self, query: Tensor, scaling: float) -> Tensor:
        return dense_attention(query, self.k.view, self.v.view, scaling)

    def _roll(self) -> None:
        if self.rope and self.evicted:
            if self.sink_keys is None:
                self.sink_keys = self.k.view[0, :, : self.sinks].clone()
            by = torch.full((self.sinks,), self.evicted)
            self.k.view[0, :, : self.sinks] = self.rope.rotate(self.sink_keys, by)
