"""Caches of layers that attend to a sliding window or a chunk: they keep only tokens that later ones can still see."""

from collections.abc import Iterable
from typing import NamedTuple, Self

import torch
from torch import Tensor

from kvbench.cache.base import Growing, LayerCache, StoredLayer
from kvbench.cache.held import Held
from kvbench.cache.reserve_ratio import Kept
from kvbench.ops.attention import dense_attention, sliding_attention
from kvbench.ops.softmax import Scaling

SLACK = 64  # tokens outside the window that may stay in the buffers before the buffers are copied


class Stores(NamedTuple):
    keys: Growing
    values: Growing


class WindowLayer(LayerCache):
    """Keys (after RoPE) and values of the last window - 1 tokens, exactly as in transformers' sliding layers.

    No method compresses it, so `kept` is None unless it takes the place of a compressed layer. A prompt may have any
    length, in one piece or in chunks. A piece is held whole until the layer, and its last reader, has attended.

    held   counts the bytes while a prompt is read; None: nothing counts them.
    """

    held: Held | None = None

    takes_blocks = True
    batches = True
    windowed = True
    fixed = True

    def __init__(self, window: int, kept: Kept | None = None, whole: bool = False, readers: int = 0):
        """whole: keep every token, so that `cut` can be called."""
        super().__init__(0, kept)
        self.window, self.whole, self.readers = window, whole, readers
        self.k: Growing | None = None
        self.v: Growing | None = None
        self.length = 0  # how many of the buffers' last tokens count

    @classmethod
    def from_tokens(cls, keys: Tensor, values: Tensor, window: int, seen: int, kept: Kept | None = None) -> Self:
        """The cache after `seen` tokens; keys, values [num_key_value_heads, len, head_dim] of the last of them."""
        layer = cls(window, kept)
        last = max(keys.shape[1] - layer.visible(seen), 0)
        layer.k, layer.v = (Growing(x[None, :, last:].clone()) for x in (keys, values))
        layer.length, layer.seen = layer.k.length, seen
        return layer

    def visible(self, seen: int) -> int:
        """Upper bound of the number of earlier tokens that the token after `seen` tokens can see."""
        return self.window - 1

    def cut(self, end: int) -> Self:
        """The cache after the first `end` tokens, without slack. Any `end` except the last needs a `whole` cache."""
        keys, values = self._stores
        last = end - self.seen + keys.length  # in the buffers
        if last < min(end, self.visible(end)):
            raise ValueError(
                f"a window of {self.window} needs some of the first {end} tokens, which are no longer stored"
            )
        layer = self.from_tokens(keys.view[0, :, :last], values.view[0, :, :last], self.window, end, self.kept)
        layer.readers = self.readers
        return layer

    def tensors(self) -> list[Tensor]:
        return [] if self.k is None else [store.buffer for store in self._stores]

    @property
    def filled_bytes(self) -> int:
        return self.length * self.token_bytes

    @property
    def token_bytes(self) -> int:
        """Bytes of one token's keys and values."""
        return 0 if self.k is None else sum(store.row_bytes for store in self._stores)

    @property
    def _stores(self) -> Stores:
        """Keys and values, after the first tokens."""
        assert self.k is not None and self.v is not None, "both come with the first tokens"
        return Stores(self.k, self.v)

    def append(self, keys: Tensor, values: Tensor) -> None:
        if self.k is None:
            self.k, self.v = Growing(keys), Growing(values)
            if self.held is not None:
                self.held.add(self.tensors())
        else:
            for store, new in zip(self._stores, (keys, values), strict=True):
                old = store.buffer
                store.append(new)
                self._replaced(old, store)
        self.length += keys.shape[2]

    def attend(self, query: Tensor, scaling: Scaling) -> Tensor:
        out = self._attention(query, scaling)
        if not self.unread:
            self._forget()
        return out

    def reread(self, query: Tensor, scaling: Scaling) -> Tensor:
        out = self._attention(query, scaling)
        if self.was_read():
            self._forget()
        return out

    def _attention(self, query: Tensor, scaling: Scaling) -> Tensor:
        keys, values = (store.view[:, :, -self.length :] for store in self._stores)
        return sliding_attention(query, keys, values, scaling, self.window)

    def _forget(self) -> None:
        """Stop counting tokens that no later query sees. Their memory is freed when they exceed SLACK."""
        if self.whole:
            return
        self.length = min(self.length, self.visible(self.seen))
        if self._stores.keys.length - self.length > SLACK:
            for store in self._stores:  # one after the other, so that only one of them exists twice at a time
                old = store.buffer
                store.keep_last(self.length)
                self._replaced(old, store)

    def _replaced(self, old: Tensor, store: Growing) -> None:
        """Count the buffer that took the place of `old`, if it is another."""
        if self.held is not None and store.buffer is not old:
            self.held.replace(old, store.buffer)


class ChunkLayer(WindowLayer):
    """Keys and values since the last multiple of `window` tokens: tokens attend only to their own chunk, as in three of
    four layers of Llama-4."""

    def visible(self, seen: int) -> int:
        return seen % self.window

    def _attention(self, query: Tensor, scaling: Scaling) -> Tensor:
        keys, values = (store.view[:, :, -self.length :] for store in self._stores)
        first, outputs = self.seen - query.shape[2], []  # position of the first query
        before = self.seen - self.length  # position of the first key
        while first < self.seen:
            start = first - first % self.window
            end = min(start + self.window, self.seen)
            chunk, queries = slice(start - before, end - before), query[:, :, : end - first]
            outputs.append(dense_attention(queries, keys[:, :, chunk], values[:, :, chunk], scaling))
            query, first = query[:, :, end - first :], end
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=2)


def fixed_bytes(layers: Iterable[StoredLayer]) -> int:
    """Bytes of the layers whose size does not grow with the text."""
    return sum(layer.filled_bytes for layer in layers if layer.fixed)
