"""SpindleKV's cache: codebook entries, and per kept vector a reference and a magnitude, packed over all heads."""

from torch import Tensor

from kvbench.cache.base import LayerCache
from kvbench.cache.reserve_ratio import Kept
from kvbench.methods.storage.codebook.pack import Codebooks, Raw, Streams
from kvbench.methods.storage.codebook.side import Side
from kvbench.ops.rope import Rope
from kvbench.ops.softmax import Scaling


class CodebookLayer(LayerCache):
    """Coded vectors of `streams`, and the prompt's last tokens as they are. A decoded token is coded as it comes."""

    def __init__(self, keys: Side, values: Side, streams: Streams, raw: Raw, seen: int, kept: Kept, rope: Rope) -> None:
        super().__init__(seen, kept)
        self.books = Codebooks(keys, values, streams, raw, seen, rope)

    def tensors(self) -> list[Tensor]:
        return [] if self.packed_row else self.books.tensors()

    def index_tables(self) -> list[Tensor]:
        return [] if self.packed_row else self.books.index_tables()

    @property
    def filled_bytes(self) -> int:
        """As if every decoded vector had become an entry: how many have is known to the device alone."""
        return (self.packed_row or self.books.rows[0]).filled_bytes

    def pack(self) -> Codebooks | None:
        """Caches that have coded decoded tokens stay alone."""
        if self.books.decoded:
            return None
        books = self.books
        del self.books
        return books

    def append(self, keys: Tensor, values: Tensor) -> None:
        self.books.append(keys, values)

    def attend(self, query: Tensor, scaling: Scaling) -> Tensor:
        return self.books.attend(query, scaling)
