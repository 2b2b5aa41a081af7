"""Dense caches: keys and values of the same number of tokens per head, which grow while decoding."""

from torch import Tensor

from kvbench.cache.base import DenseRows, Growing, LayerCache, unfolded
from kvbench.cache.packed import Packed
from kvbench.cache.reserve_ratio import Kept
from kvbench.errors import UserError
from kvbench.ops.attention import dense_attention
from kvbench.ops.softmax import Scaling


class DenseLayer(LayerCache):
    """Keys (after RoPE) and values [heads, len, head_dim], the same number of tokens in every head.

    heads is num_key_value_heads, or num_attention_heads if GQA groups are unfolded. Positions are not stored: keys
    after RoPE contain them.
    """

    takes_blocks = True
    batches = True

    def __init__(self, keys: Tensor, values: Tensor, seen: int, kept: Kept):
        if keys.dim() != 3 or keys.shape[:2] != values.shape[:2]:
            raise UserError(
                f"DenseLayer was given keys {[*keys.shape]} and values {[*values.shape]}: both must be "
                "[heads, len, width], with equal heads and len"
            )
        super().__init__(seen, kept)
        self.k, self.v = Growing(keys[None]), Growing(values[None])

    def tensors(self) -> list[Tensor]:
        return [self.k.buffer, self.v.buffer]

    @property
    def filled_bytes(self) -> int:
        return self.k.filled_bytes + self.v.filled_bytes

    def for_batch(self) -> LayerCache:
        """A `Packed` cache, which can have room and join others; a subclass, which may attend differently, itself."""
        if type(self) is not DenseLayer:
            return self
        return Packed.dense(self.k.view[0], self.v.view[0], self.seen, self.kept)

    def as_dense(self) -> DenseRows | None:
        return DenseRows(self.k.view, self.v.view) if type(self) is DenseLayer else None

    def append(self, keys: Tensor, values: Tensor) -> None:
        for store, new in ((self.k, keys), (self.v, values)):
            store.append(unfolded(new, store.buffer.shape[1]))

    def attend(self, query: Tensor, scaling: Scaling) -> Tensor:
        return dense_attention(query, self.k.view, self.v.view, scaling)
