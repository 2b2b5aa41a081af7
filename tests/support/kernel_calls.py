"""Calls of all Triton kernels with the arguments that caches of a given shape give them, on tensors without memory."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from pathlib import Path

import torch
from torch import Tensor

import kvbench
from kvbench.methods.kivi.quantised_attention import Stored
from kvbench.methods.spindlekv.ops.codebook_layout import Books, Coded, Layout, Place, Rotation, Seen, Vectors
from kvbench.ops.formats import GGML, MICROSCALING
from kvbench.ops.segments import Segments, Visible

PACKAGE = Path(kvbench.__file__).parent
HIDDEN = 32  # queries that are read at once
CODES = ((4, 4), (2, 2), (8, 8), (4, 2))  # bits of keys and of values
GROUP = 32  # elements that share a scale
RECENT = 128  # rows that are not quantised
MOST_VECTORS = 3000  # of a greedy cover: its adjacency has so many bits in a row


@dataclass(frozen=True)
class Shape:
    """A model's heads, and how many tokens rows of a batch hold."""

    head_dim: int = 128
    group: int = 4
    dtype: torch.dtype = torch.bfloat16
    tokens: int = 8200
    kv_heads: int = 8
    rows: int = 1
    device: str = "meta"

    def new(self, *sizes: int, dtype: torch.dtype | None = None) -> Tensor:
        return torch.empty(*sizes, dtype=dtype or self.dtype, device=self.device)

    def ints(self, *sizes: int) -> Tensor:
        return self.new(*sizes, dtype=torch.int32)

    def longs(self, *sizes: int) -> Tensor:
        return self.new(*sizes, dtype=torch.int64)

    def bytes(self, *sizes: int) -> Tensor:
        return self.new(*sizes, dtype=torch.uint8)


def kernel(name: str, module: str | None = None) -> Callable:
    """A function of the module of that name, or of another one, in whichever folder of kernels it lies."""
    return getattr(import_module(_kernel_modules()[module or name]), name)


@cache
def _kernel_modules() -> dict[str, str]:
    """Names as Python imports them, by the names of the files."""
    paths = [path.relative_to(PACKAGE.parent).with_suffix("") for path in PACKAGE.rglob("kernels/*.py")]
    return {path.name: ".".join(path.parts) for path in paths}


def calls(shape: Shape) -> Iterator[tuple[str, Callable[[], object]]]:
    """A name and a call of every kernel, in every form that `shape` allows."""
    for of in (packed, quantised, codebooks, others):
        yield from of(shape)


def packed(shape: Shape) -> Iterator[tuple[str, Callable[[], object]]]:
    """Attention over packed segments with and without bits, one query and several, and appending to them."""
    segments, heads = shape.rows * shape.kv_heads, shape.kv_heads * shape.group
    keys = shape.new(1, shape.head_dim)
    places = shape.ints(segments + 1), shape.ints(segments), shape.ints(segments + 1)
    masks = shape.ints(segments), shape.ints(segments), shape.bytes(8)
    for q in (1, HIDDEN):
        query = shape.new(shape.rows, heads, q, shape.head_dim)
        args = (query, keys, keys, Segments(*places, shape.group, shape.tokens), 0.1)
        yield f"packed_attention q={q}", partial(kernel("packed_attention"), *args, Visible())
        if q == 1:
            yield "packed_attention bits", partial(kernel("packed_attention"), *args, Visible(*masks))
    new = shape.new(shape.rows, shape.kv_heads, 1, shape.head_dim)
    yield "packed_append", partial(kernel("packed_append"), keys, keys, places[1], places[0], masks[0], new, new)


def quantised(shape: Shape) -> Iterator[tuple[str, Callable[[], object]]]:
    """KIVI: quantising keys and values, restoring them, and attention over the codes."""
    heads, width, older = shape.rows * shape.kv_heads, shape.head_dim, shape.tokens - shape.tokens % RECENT
    query = shape.new(1, heads * shape.group, 1, width)
    for key_bits, value_bits in CODES:
        if width % GROUP:
            continue
        rows = shape.new(heads, older, width)
        for axis, bits in ((1, key_bits), (2, value_bits)):
            yield f"quantise axis {axis}, {bits} bits", partial(kernel("quantise"), rows, bits, GROUP, axis)
            parts = older // GROUP if axis == 1 else older, width if axis == 1 else width // GROUP
            codes = (older * bits // 8, width) if axis == 1 else (older, width * bits // 8)
            stored = shape.bytes(heads, *codes), shape.new(heads, *parts), shape.new(heads, *parts)
            yield f"dequantise axis {axis}, {bits} bits", partial(kernel("dequantise"), *stored, bits, GROUP, axis)
            if axis == 1:
                keys = stored
        recent = shape.new(heads, RECENT, width)
        lengths = shape.ints(heads)
        sides = Stored(*keys, recent, key_bits), Stored(*stored, recent, value_bits)
        args = (query, *sides, lengths, shape.tokens, RECENT, GROUP, 0.1)
        yield f"quantised_attention {key_bits}, {value_bits}", partial(kernel("quantised_attention"), *args)
    new = shape.new(shape.rows, shape.kv_heads, 1, width)
    rings = shape.new(heads, RECENT, width), shape.new(heads, RECENT, width), shape.ints(heads)
    yield "ring_append", partial(kernel("ring_append"), *rings, new, new, RECENT)


def codebooks(shape: Shape) -> Iterator[tuple[str, Callable[[], object]]]:
    """SpindleKV: attention over references, and coding one token into books of their own and into one for all."""
    streams, width = shape.rows * shape.kv_heads, shape.head_dim
    entries, references = shape.new(64, width), shape.bytes(64)
    order, turns = shape.longs(width), shape.new(shape.tokens + 64, width // 2, 2, dtype=torch.float32)
    layout = Layout(shape.longs(streams, len(Place._fields)), shape.tokens, shape.ints(streams))
    for magnitudes in (None, shape.new(64)):
        side = Coded(entries, references, magnitudes)
        query, seen, raw = shape.new(streams, shape.group, width), Seen(None, shape.bytes(8)), Vectors(entries, entries)
        args = (query, side, side, seen, raw, Rotation(order, turns), layout, shape.tokens, 0.1)
        form = "whole vectors" if magnitudes is None else "magnitudes"
        yield f"codebook_attention, {form}", partial(kernel("codebook_attention"), *args)
        new = shape.new(streams, width)
        for books in (streams, shape.rows):
            sized = (Books(shape.longs(books), shape.tokens, bound) for bound in (0.98, 0.95))
            args = (side, side, *sized, Vectors(new, new), Rotation(order, turns), layout)
            yield f"codebook_append, {books} books", partial(kernel("codebook_append"), *args)
    args = (shape.new(shape.tokens, width), shape.longs(shape.tokens), turns, order)
    yield "turn_back", partial(kernel("turn_back"), *args)


def others(shape: Shape) -> Iterator[tuple[str, Callable[[], object]]]:
    """Column sums, merged rows, greedy covers, and numbers of block formats."""
    heads, n, width = shape.rows * shape.kv_heads, shape.tokens, shape.head_dim
    sums = shape.new(heads * shape.group, n, dtype=torch.float32)
    keys = shape.new(heads, n, width)
    for q, weights in ((HIDDEN, None), (min(n, 2048), shape.new(min(n, 2048), dtype=torch.float32))):
        queries = shape.new(heads * shape.group, q, width)
        args = (queries, keys, 0.1, n - q, 0, weights, sums)
        yield f"add_column_sums of {q} queries", partial(kernel("add_column_sums"), *args)
    merged = n - n // 8
    args = (shape.new(heads, merged, width), shape.new(heads, merged), shape.new(heads, n - merged, width))
    yield "merged_rows", partial(kernel("merged_rows"), *args, shape.bytes(heads, -(-n // 8)))
    for form in (GGML | MICROSCALING).values():
        blocks = heads * n * max(width // form.block, 1)
        stored, scales = shape.bytes(blocks, form.block_bytes), shape.new(2, blocks, dtype=torch.float32)
        args = (stored, form.header, form.bits, shape.new(2**form.bits, dtype=torch.float32), *scales)
        yield f"block_values of {form.name}", partial(kernel("block_values"), *args)
    vectors = min(n, MOST_VECTORS)
    args = (shape.new(heads, vectors, width), shape.longs(heads), shape.longs(heads, vectors), 0.98)
    yield "greedy_covers", partial(kernel("greedy_covers"), *args)
