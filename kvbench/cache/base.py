"""What every layer cache does: take new tokens, answer attention, count its bytes."""

from abc import abstractmethod
from collections.abc import Iterable

import torch
from torch import Tensor
from transformers.cache_utils import CacheLayerMixin

from kvbench.cache.reserve_ratio import Kept

# Room is added this many tokens at a time while decoding: one copy per block, at most a block of slack.
BLOCK = 64


def storage_bytes(tensors: Iterable[Tensor]) -> int:
    """Bytes of the storages behind `tensors`, each counted once and in full."""
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}
    return sum(storages.values())


class AttendingLayer(CacheLayerMixin):
    """A cache layer that returns itself to the attention function and answers the query there."""

    def __init__(self):
        super().__init__()
        self.seen = 0
        self.is_initialized = True

    @abstractmethod
    def append(self, keys: Tensor, values: Tensor) -> None:
        """Store new tokens: keys (after RoPE) and values, [1, num_key_value_heads, t, head_dim]."""

    @abstractmethod
    def attend(self, query: Tensor, scaling: float) -> Tensor:
        """Answer query [1, num_attention_heads, q, head_dim] with [1, num_attention_heads, q, head_dim]."""

    def update(self, key_states: Tensor, value_states: Tensor, *args, **kwargs):
        self.append(key_states, value_states)
        self.seen += key_states.shape[2]
        return self, self

    def get_seq_length(self) -> int:
        """Tokens seen, not stored: the next token's position stays true after eviction."""
        return self.seen

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.seen + query_length, 0

    def get_max_length(self) -> int:
        return -1

    get_max_cache_shape = get_max_length  # what transformers 5.2 calls it

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Nothing to do: layers are built around their tensors."""


class LayerCache(AttendingLayer):
    """The compressed store of one layer, made from a prompt of `seen` tokens.

    `kept` says what the prompt's compression retained (formula 15); `tensors` yields everything stored.
    `late_bytes` is for a cache that compresses the prompt only while decoding: the bytes of the prompt right
    after that, when `kept` changes too. None: `nbytes` tells them as soon as the cache is made.
    `takes_blocks`: whether several tokens may come at once, each seeing those before it.
    `batches`: whether it may decode beside others in a batch, where sums are rounded differently: nothing
    that it does with decoded tokens (evicting, coding, quantising) turns on a rounding error.
    """

    late_bytes: int | None = None
    takes_blocks: bool = False
    batches: bool = False

    def __init__(self, seen: int, kept: Kept):
        super().__init__()
        self.seen = seen
        self.kept = kept

    @abstractmethod
    def tensors(self) -> list[Tensor]:
        """Every tensor this layer holds on to. What two layers share, the lower one lists: layers are summed."""

    @property
    def nbytes(self) -> int:
        """Bytes of the storages behind `tensors`, each counted once and in full, slack included."""
        return storage_bytes(self.tensors())


class Growing:
    """A tensor [..., len, width] that takes new rows at the end; `view` is the filled part.

    Room is made for `block` rows at a time.
    """

    def __init__(self, rows: Tensor, block: int = BLOCK):
        self.buffer = rows.contiguous()
        self.block = block
        self.length = rows.shape[-2]

    @property
    def view(self) -> Tensor:
        return self.buffer[..., : self.length, :]

    def append(self, rows: Tensor) -> None:
        t = rows.shape[-2]
        if self.length + t > self.buffer.shape[-2]:
            room = self.buffer.new_empty(*self.buffer.shape[:-2], t + self.block - 1, self.buffer.shape[-1])
            self.buffer = torch.cat([self.view, room], dim=-2)
        self.buffer[..., self.length : self.length + t, :] = rows
        self.length += t
