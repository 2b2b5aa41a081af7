"""The interface of layer caches: append tokens, compute attention, count bytes."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from kvbench.cache.reserve_ratio import Kept
from kvbench.models.attending_layer import AttendingLayer
from kvbench.models.cache_layers import DummyLayer

# Tokens by which a buffer grows while decoding: one copy per block, at most one block of slack.
BLOCK = 64


def storage_bytes(tensors: Iterable[Tensor]) -> int:
    """Bytes of the storages behind `tensors`, each counted once and in full."""
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}
    return sum(storages.values())


def bytes_in_16_bits(tensors: Iterable[Tensor], others: Iterable[Tensor], element_bytes: int) -> int:
    """`storage_bytes` of `tensors`, as if the model's numbers had two bytes instead of `element_bytes`.

    Floating-point tensors of `element_bytes` a number belong to the model, except for the `others` among them.
    """
    unscaled = {tensor.untyped_storage().data_ptr() for tensor in others}
    sizes = {}
    for tensor in tensors:
        storage = tensor.untyped_storage()
        of_model = tensor.is_floating_point() and tensor.element_size() == element_bytes
        scaled = element_bytes > 2 and of_model and storage.data_ptr() not in unscaled
        sizes[storage.data_ptr()] = storage.nbytes() * 2 // element_bytes if scaled else storage.nbytes()
    return sum(sizes.values())


class StoredLayer(ABC):
    """The stored state of one layer of a model, and the count of its bytes.

    kept           the tokens of the prompt that compression retained, for the reserve ratio (SpindleKV, formula 15);
                   None for a layer that no method compresses.
    fixed          whether its size does not grow with the text, even under FullKV.
    late_bytes     bytes of the prompt in a cache that compresses only while decoding, counted right after compression
                   (`kept` changes then, too); `late_bytes_16` counts as `bytes_in_16_bits`. None: the bytes of the new
                   cache count.
    triggers       number of reductions of a cache that is reduced at intervals while decoding; None for other caches.
    takes_blocks   whether several tokens can be appended at once, each attending to the tokens before it. If not,
                   `attend_one_by_one` reads a block.
    batches        whether it may decode in a batch with other caches, where sums are rounded differently: eviction,
                   coding and quantisation of decoded tokens must not depend on a rounding error.
    """

    kept: Kept | None = None
    fixed: bool = False
    late_bytes: int | None = None
    late_bytes_16: int | None = None
    triggers: int | None = None
    takes_blocks: bool = False
    batches: bool = False

    @abstractmethod
    def tensors(self) -> list[Tensor]:
        """Every stored tensor. Of two layers that share a tensor the lower layer lists it, since layers are summed."""

    def index_tables(self) -> list[Tensor]:
        """Tensors beside `tensors` that no ratio counts: at most a few numbers per head for the places of its tokens,
        which do not grow with the text (docs/reserve-ratio.md). `kvbench check` tests both properties."""
        return []

    def float32_tensors(self) -> list[Tensor]:
        """The tensors that are float32 also in a 16-bit model: scales, levels, scores. Any other tensor whose numbers
        have as many bytes as the model's counts as being in the model's dtype."""
        return []

    def bytes_in_16_bits(self, element_bytes: int) -> int:
        """`nbytes` of a new cache as if the model's numbers, of `element_bytes`, had two bytes each. Codes and
        `float32_tensors` keep their size."""
        return bytes_in_16_bits(self.tensors(), self.float32_tensors(), element_bytes)

    @property
    def filled_bytes(self) -> int:
        """Bytes of `tensors` without the room for further tokens; known to the host.

        A layer whose tensors have room overrides this. A size that only the device knows counts as its upper bound.
        """
        return sum(tensor.nbytes for tensor in self.tensors())

    @property
    def read_bytes(self) -> int:
        """Bytes that attention reads in one pass: each stored tensor once."""
        return self.filled_bytes

    @property
    def unread_bytes(self) -> int:
        """Bytes in the `read_bytes` of all passes so far that attention did not read.

        Only the device knows them: reading them waits for the device, so read them after decoding.
        """
        return 0

    @property
    def nbytes(self) -> int:
        """Bytes of the storages behind `tensors`, each counted once and in full, slack included."""
        return held_bytes([self])


class Row(StoredLayer):
    """One sequence's part of a cache of several sequences. It replaces the single cache in the sequence's list."""

    def __init__(self, kept: Kept | None, held: int = 0, filled: int = 0, fixed: bool = False):
        """held: bytes, room for further tokens included; filled: without this room."""
        self.kept, self.held, self.filled, self.fixed = kept, held, filled, fixed

    def tensors(self) -> list[Tensor]:
        """No tensors: the cache of all sequences lists them."""
        return []

    @property
    def nbytes(self) -> int:
        return self.held

    @property
    def filled_bytes(self) -> int:
        return self.filled


class DenseRows(NamedTuple):
    keys: Tensor  # [1, heads, len, width]
    values: Tensor  # [1, heads, len, width]


class LayerCache(StoredLayer, AttendingLayer):
    """The cache of one layer with attention, compressed or not, made from a prompt of `seen` tokens."""

    def __init__(self, seen: int, kept: Kept | None):
        super().__init__()
        self.seen = seen
        self.kept = kept

    def as_dense(self) -> DenseRows | None:
        """All tokens in the form that attention uses, in the model's dtype, if `attend` is only `dense_attention` over
        these tokens for all heads; else None."""
        return None

    def for_batch(self) -> "LayerCache":
        """The cache for a batch: itself, or a `RowsLayer` with the same contents that can join others."""
        return self


class NoCache(StoredLayer, DummyLayer):
    """The cache of a layer without storage: it attends to an earlier layer's keys and values, or does not attend."""

    fixed = takes_blocks = batches = True

    def tensors(self) -> list[Tensor]:
        return []


def held_bytes(caches: Sequence[StoredLayer]) -> int:
    """Bytes of the storages behind the tensors of `caches`, each once, and of the rows of a batch among them."""
    tensors = [tensor for cache in caches for tensor in cache.tensors()]
    return storage_bytes(tensors) + sum(cache.held for cache in caches if isinstance(cache, Row))


class Growing:
    """A tensor [..., len, width] that grows by rows at the end, `block` rows at a time; `view` is the filled part.

    The room after it holds zeros: attention over the whole buffer multiplies them by 0.
    """

    def __init__(self, rows: Tensor, block: int = BLOCK):
        self.buffer = rows.contiguous()
        self.block = block
        self.length = rows.shape[-2]
        *leading, _, width = rows.shape
        self.row_bytes: int = math.prod(leading) * width * rows.element_size()  # bytes of one row [..., 1, width]

    @property
    def view(self) -> Tensor:
        return self.buffer.narrow(-2, 0, self.length)

    @property
    def filled_bytes(self) -> int:
        """Bytes of `view`."""
        return int(self.length * self.row_bytes)

    def reserve(self, rows: int) -> None:
        """Make room for `rows` more rows."""
        if self.length + rows > self.buffer.shape[-2]:
            room = self.buffer.new_zeros(*self.buffer.shape[:-2], rows, self.buffer.shape[-1])
            self.buffer = torch.cat([self.view, room], dim=-2)

    def put(self, rows: Tensor, place: Tensor) -> None:
        """Write rows [..., 1, width] to the row `place`, int64 [1] on the device, within the room; count no row."""
        stored = rows.to(self.buffer.dtype)  # copied as bytes: torch does not copy every dtype to an index
        self.buffer.view(torch.uint8).index_copy_(-2, place, stored.view(torch.uint8))

    def of_heads(self, heads: Tensor) -> "Growing":
        """Only these heads of [heads, len, width], with the same room."""
        kept = Growing(self.buffer.index_select(0, heads), self.block)
        kept.length = self.length
        return kept

    def keep_last(self, rows: int) -> None:
        """Free everything but the last `rows` rows, the room included."""
        self.buffer = self.view.narrow(-2, self.length - rows, rows).clone()
        self.length = rows

    def append(self, rows: Tensor) -> None:
        t = rows.shape[-2]
        if self.length + t > self.buffer.shape[-2]:
            self.reserve(t + self.block - 1)
        self.buffer.narrow(-2, self.length, t).copy_(rows)
        self.length += t


def unfolded(new: Tensor, heads: int) -> Tensor:
    """New tokens [rows, num_key_value_heads, …] for the `heads` heads that store tokens: if GQA groups are unfolded,
    every query head gets a copy, [rows, heads, …]."""
    copies = heads // new.shape[1]
    return new.repeat_interleave(copies, dim=1) if copies > 1 else new


def filled(*stores: Growing | Tensor | None) -> int:
    """Bytes of tensors, and of the filled parts of growing tensors."""
    return sum(
        store.filled_bytes if isinstance(store, Growing) else store.nbytes for store in stores if store is not None
    )
