"""Query-head selection without copies: a token kept by any query head of a group is stored once."""

from collections.abc import Sequence

from torch import Tensor

from kvbench.cache.base import LayerCache
from kvbench.cache.packed import Packed
from kvbench.cache.ragged import RaggedLayer
from kvbench.cache.reserve_ratio import Kept


class UnionLayer(RaggedLayer):
    """Per KV head the union of its query heads' kept tokens, and one bit per query head and prompt token.

    The attention output equals that of the unfolded cache; each token of the union is stored once.
    """

    takes_blocks = False

    def __init__(
        self,
        keys: Tensor,
        values: Tensor,
        chosen: Tensor,
        seen: int,
        kept: Kept,
        lengths: Sequence[int] | None = None,
    ):
        """keys, values [num_key_value_heads, n, head_dim].

        chosen, bool [num_key_value_heads, group, n]: the tokens that each query head keeps. lengths: the sizes of the
        unions; None: one wait for the device.
        """
        LayerCache.__init__(self, seen, kept)
        self.packed = Packed.chosen(keys, values, chosen.any(dim=1), chosen, lengths)
