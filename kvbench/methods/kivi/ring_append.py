"""Appending one token to keys and values that lie in rings (`kvbench.cache.quantised`)."""

from torch import Tensor

from kvbench.cache.base import unfolded
from kvbench.ops.operator import of_one_width, operator


@operator(launches=1, mutates=("key_rows", "value_rows", "lengths"), takes=of_one_width)
def ring_append(key_rows: Tensor, value_rows: Tensor, lengths: Tensor, keys: Tensor, values: Tensor, ring: int) -> None:
    """Write one new token of every head to row lengths[head] mod `ring`; add 1 to lengths, int32 [heads], all equal.

    key_rows, value_rows [heads, at most ring, head_dim] must have this row; values may have another width. Each head of
    keys, values [rows, num_key_value_heads, 1, head_dim] is written to heads / (rows · num_key_value_heads) copies.
    """
    slot = lengths[:1] % ring
    for store, new in ((key_rows, keys), (value_rows, values)):
        store.index_copy_(1, slot.long(), unfolded(new, len(store) // len(new)).flatten(0, 1))
    lengths += 1
