"""SpindleKV's cache: codebook entries, and per kept vector a reference and a magnitude."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from kvbench.cache.base import Growing, LayerCache
from kvbench.cache.reserve_ratio import Kept
from kvbench.ops.bits import unpack_bits
from kvbench.ops.directions import bound
from kvbench.ops.rope import Rope


def smallest_integer(most: int) -> torch.dtype:
    """The narrowest integer type that holds 0 … most; above 16 bits the signed one is no wider."""
    return torch.uint8 if most < 2**8 else torch.uint16 if most < 2**16 else torch.int32


class Book:
    """Entries [|C|, head_dim] of one codebook: unit vectors, or whole ones where no magnitudes are kept."""

    def __init__(self, entries: Tensor, theta: float):
        self.entries = Growing(entries)
        self.theta = theta

    def __len__(self) -> int:
        return self.entries.length

    def find(self, vector: Tensor) -> int | None:
        """The entry most similar to vector [head_dim], if their cosine is above theta; ties: the lowest."""
        if len(self) == 0:
            return None
        cosines = F.normalize(self.entries.view.float(), dim=-1) @ F.normalize(vector.float(), dim=0)
        best = int(cosines.argmax())
        return best if cosines[best] > bound(self.theta) else None


class Coded:
    """Vectors of one head as references into a book, and their magnitudes unless the entries' own serve."""

    def __init__(self, book: Book, references: Tensor, magnitudes: Tensor | None):
        """references [len] integers, magnitudes [len] in the model's dtype."""
        self.book = book
        self.references = Growing(references.to(smallest_integer(len(book) - 1))[:, None])
        self.magnitudes = None if magnitudes is None else Growing(magnitudes[:, None].clone())

    def tensors(self) -> list[Tensor]:
        stored = [self.book.entries.buffer, self.references.buffer]
        return stored if self.magnitudes is None else [*stored, self.magnitudes.buffer]

    def read(self) -> Tensor:
        """The vectors as the book has them, [len, head_dim] (equation 14)."""
        vectors = self.book.entries.view[self.references.view[:, 0].long()]
        return vectors if self.magnitudes is None else vectors * self.magnitudes.view

    def append(self, vectors: Tensor) -> None:
        """Code vectors [t, head_dim] one by one: as an entry that is near enough, or as a new one."""
        for vector in vectors:
            reference = self.book.find(vector)
            if reference is None:
                reference = len(self.book)
                entry = vector if self.magnitudes is None else F.normalize(vector.float(), dim=0)
                self.book.entries.append(entry.to(self.book.entries.buffer.dtype)[None])
            self._refer(reference)
            if self.magnitudes is not None:
                self.magnitudes.append(vector.float().norm().to(self.magnitudes.buffer.dtype).view(1, 1))

    def _refer(self, reference: int) -> None:
        if reference > torch.iinfo(self.references.buffer.dtype).max:
            self.references = Growing(self.references.view.to(smallest_integer(reference)))
        new = torch.tensor([[reference]], dtype=self.references.buffer.dtype, device=self.references.buffer.device)
        self.references.append(new)


@dataclass
class Stream:
    """What the query heads of one stored head share: its coded keys and values.

    Of the prompt come the `prompt` first ones; decoded tokens follow, at positions that need no storing.
    """

    keys: Coded  # before RoPE
    values: Coded
    prompt: int
    positions: Tensor | None  # [prompt] in the narrowest integer type; None: 0 … prompt-1
    bits: Tensor | None  # uint8 [query heads, ceil(prompt / 8)] who kept what; None: all kept all

    def tensors(self) -> list[Tensor]:
        own = [t for t in (self.positions, self.bits) if t is not None]
        return self.keys.tensors() + self.values.tensors() + own


class CodebookLayer(LayerCache):
    """Coded vectors of `streams`, and the prompt's last tokens as they are.

    A stream is a KV head, or a query head where each has its own codebook; query head q reads stream
    q // (num_attention_heads / streams). Keys are coded before RoPE and rotated to their original positions
    whenever they are read. A decoded token is matched to an entry or becomes one, once per stream.
    """

    def __init__(
        self, streams: list[Stream], raw_keys: list[Tensor], raw_values: list[Tensor], seen: int, kept: Kept, rope: Rope
    ):
        """raw_keys (after RoPE) and raw_values: [w, head_dim] for each KV head."""
        super().__init__(seen, kept)
        self.streams, self.raw_keys, self.raw_values = streams, raw_keys, raw_values
        self.prompt, self.rope = seen, rope

    def tensors(self) -> list[Tensor]:
        return [t for stream in self.streams for t in stream.tensors()] + self.raw_keys + self.raw_values

    def append(self, keys: Tensor, values: Tensor) -> None:
        positions = torch.arange(self.seen, self.seen + keys.shape[2], device=keys.device)
        plain = self.rope.rotate(keys[0].float(), -positions)
        copies = len(self.streams) // len(plain)
        for number, stream in enumerate(self.streams):
            stream.keys.append(plain[number // copies])
            stream.values.append(values[0, number // copies])

    def attend(self, query: Tensor, scaling: float) -> Tensor:
        groups = query[0, :, 0].unflatten(0, (len(self.streams), -1))  # [streams, group, head_dim]
        heads = zip(groups, self.read_keys(), self.read_values(), self.masks(), strict=True)
        out = [
            F.scaled_dot_product_attention(
                q[None], k[None], v[None], attn_mask=None if m is None else m[None], scale=scaling
            )[0]
            for q, k, v, m in heads
        ]
        return torch.cat(out)[None, :, None]  # [1, num_attention_heads, 1, head_dim]

    def read_keys(self) -> list[Tensor]:
        """Per stream the keys that attention reads, after RoPE: coded ones, then raw ones [len, head_dim]."""
        coded = [stream.keys.read() for stream in self.streams]
        positions = torch.cat([self._positions(stream, len(k)) for stream, k in zip(self.streams, coded, strict=True)])
        rotated = self.rope.rotate(torch.cat(coded)[None], positions)[0].split([len(k) for k in coded])
        return [torch.cat(pair) for pair in zip(rotated, self._shared(self.raw_keys), strict=True)]

    def read_values(self) -> list[Tensor]:
        """Per stream the values that attention reads, in the order of `read_keys`."""
        coded = [stream.values.read() for stream in self.streams]
        return [torch.cat(pair) for pair in zip(coded, self._shared(self.raw_values), strict=True)]

    def masks(self) -> list[Tensor | None]:
        """Per stream which query head sees which of `read_keys`: bool [group, len], None for all."""
        return [
            self._mask(stream, len(raw)) for stream, raw in zip(self.streams, self._shared(self.raw_keys), strict=True)
        ]

    def _mask(self, stream: Stream, raw: int) -> Tensor | None:
        if stream.bits is None:
            return None
        later = stream.keys.references.length - stream.prompt + raw  # decoded and raw tokens: all see them
        return F.pad(unpack_bits(stream.bits, stream.prompt), (0, later), value=True)

    def _positions(self, stream: Stream, length: int) -> Tensor:
        """Original positions of a stream's coded vectors [length]."""
        device = stream.keys.references.buffer.device
        positions = stream.positions
        prompt = torch.arange(stream.prompt, device=device) if positions is None else positions.long()
        decoded = torch.arange(self.prompt, self.prompt + length - stream.prompt, device=device)
        return torch.cat([prompt, decoded])

    def _shared(self, raw: list[Tensor]) -> list[Tensor]:
        """What the streams see of a list that has one tensor for each KV head."""
        copies = len(self.streams) // len(raw)
        return [tensor for tensor in raw for _ in range(copies)]
