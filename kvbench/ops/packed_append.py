"""Appending tokens to packed keys and values (`kvbench.cache.packed`), all segments at once."""

import torch
from torch import Tensor

from kvbench.ops.operator import of_one_width, operator


@operator(launches=1, mutates=("keys", "values", "lengths"), takes=of_one_width)
def packed_append(
    keys: Tensor,
    values: Tensor,
    lengths: Tensor,
    starts: Tensor,
    sources: Tensor,
    new_keys: Tensor,
    new_values: Tensor,
) -> None:
    """Append t new tokens to every segment and add t to its length.

    keys, values [capacity, head_dim], where values may have another width; starts [segments + 1] and lengths
    [segments], int32: segment s has lengths[s] rows from starts[s] on. new_keys, new_values [rows, num_key_value_heads,
    t, head_dim]; segment s gets the tokens of head sources[s] among rows · num_key_value_heads heads.
    """
    t = new_keys.shape[2]
    places = starts[:-1] + lengths
    if t > 1:
        places = (places[:, None] + torch.arange(t, device=places.device)).flatten()
    places = places.long()
    for store, new in ((keys, new_keys), (values, new_values)):
        rows = new.flatten(0, 1).index_select(0, sources).flatten(0, 1)  # [segments · t, head_dim]
        store.index_copy_(0, places, rows)
    lengths += t
