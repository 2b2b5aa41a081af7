"""Query-head selection without copies: a token kept by any query head of a group is stored once."""

from collections.abc import Sequence

from torch import Tensor

from kvbench.cache.packed import Packed
from kvbench.cache.ragged import RaggedLayer


class UnionLayer(RaggedLayer):
    """Per KV head the union of its query heads' kept tokens, and one bit per query head and prompt token.

    The attention output equals that of the unfolded cache; each token of the union is stored once.
    """

    @staticmethod
    def packed_from(keys: Tensor, values: Tensor, chosen: Tensor, lengths: Sequence[int] | None) -> Packed:
        """chosen, bool [num_key_value_heads, group, n]: the tokens of each query head; lengths: sizes of the unions."""
        return Packed.chosen(keys, values, chosen.any(dim=1), chosen, lengths)
