"""The cache of a layer with latent attention: latents and rotated keys in a store for keys and values."""

from torch import Tensor

from kvbench.cache.base import LayerCache
from kvbench.errors import UserError
from kvbench.models.latents import LATENTS, as_one_head
from kvbench.ops.attention import dense_attention
from kvbench.ops.softmax import Scaling


class LatentCache(LayerCache):
    """Attention of all heads over the latents that `store` holds as the values of one head, beside rotated keys.

    The store grows, counts and encodes as for keys and values. This cache attends to the rows that the store restores,
    at most once per step. Queries are absorbed (`kvbench.models.latents`).
    """

    latent = absorbs = True

    def __init__(self, store: LayerCache):
        """Raises UserError for a store whose attention does more than read keys and values of one head."""
        super().__init__(store.seen, store.kept)
        rows = store.as_dense()
        if rows is None:
            raise UserError(f"{LATENTS}; this method reads those while decoding ({type(store).__name__})")
        if rows.keys.shape[1] != 1:
            raise UserError(f"{LATENTS}: one set of tokens for all; this method stores keys and values of each head")
        self.store = store
        self.takes_blocks, self.fixed = store.takes_blocks, store.fixed

    def tensors(self) -> list[Tensor]:
        return self.store.tensors()

    def index_tables(self) -> list[Tensor]:
        return self.store.index_tables()

    def float32_tensors(self) -> list[Tensor]:
        return self.store.float32_tensors()

    @property
    def filled_bytes(self) -> int:
        return self.store.filled_bytes

    @property
    def read_bytes(self) -> int:
        return self.store.read_bytes

    def append(self, keys: Tensor, values: Tensor) -> None:
        """Rotated keys and latents, [1, 1, t, width] each."""
        self.store.take(keys, values)

    def attend(self, query: Tensor, scaling: Scaling) -> Tensor:
        """The weighted mean of latents for absorbed queries, [1, num_attention_heads, q, kv_lora_rank]."""
        rows = self.store.as_dense()
        assert rows is not None, "the constructor refuses other stores"
        keys, values = as_one_head(*rows)
        return dense_attention(query, keys, values, scaling)
