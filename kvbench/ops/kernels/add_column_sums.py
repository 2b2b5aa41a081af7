"""Column sums in two passes like a flash kernel: every query's log-sum-exp, then every key's sum; O(n) memory.

A program processes one tile of queries (or keys) of one query head and loops over all keys (or queries). No sum is
atomic, so the sums are the same in every run. If few queries see many keys, the first pass is split over keys, and the
second pass joins its parts. If attention has computed the log-sum-exps, there is no first pass.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from kvbench.ops.kernels.dot import dot
from kvbench.ops.kernels.registers import most_registers

WARPS = 4
MOST_PROGRAMS = 1024  # programs of the first pass; about this many fill a GPU
LEAST_KEYS = 512  # keys per split


def add_column_sums(
    queries: Tensor,
    keys: Tensor,
    scaling: float,
    start: int,
    first_causal: int,
    weights: Tensor | None,
    sums: Tensor,
    lse: Tensor | None = None,
) -> Tensor:
    """See `kvbench.ops.column_sums.add_column_sums`."""
    heads, q, head_dim = queries.shape
    length = keys.shape[1]
    queries, keys = (x if x.stride(2) == 1 else x.contiguous() for x in (queries, keys))
    seeing = min(max(first_causal - start, 0), q)  # queries that attend to all keys
    shape = tile_sizes(head_dim, queries.dtype)
    strides = (queries.stride(0), queries.stride(1), keys.stride(0), keys.stride(1))
    group = heads // keys.shape[0]
    counts = (q, length, start, seeing, float(scaling), group)
    if lse is None:
        tiles = triton.cdiv(q, shape["ROWS"])
        split_keys, splits = splitting(length, tiles * heads, shape["COLUMNS"])
        parts = torch.empty(splits, heads, q, dtype=torch.float32, device=queries.device)
        log_sums[(tiles, heads, splits)](
            queries, keys, parts, *strides, *counts, split_keys, D=head_dim, **shape, num_warps=WARPS
        )
    else:
        parts, splits = lse[None].contiguous(), 1
    lse = torch.empty(heads, q, dtype=torch.float32, device=queries.device)
    weights = None if weights is None else weights.float().contiguous()
    wide = head_dim > 128 and queries.dtype != torch.float32
    limit = most_registers(255) if wide else {}
    sum_columns[(triton.cdiv(length, shape["COLUMNS"]), heads)](
        queries, keys, parts, lse, weights, sums, *strides, sums.stride(0), *counts, splits,
        D=head_dim, **shape, num_warps=WARPS, **limit,
    )  # fmt: skip
    return lse


def splitting(length: int, programs: int, columns: int) -> tuple[int, int]:
    """Keys per split of the first pass, a multiple of `columns`, and the number of splits of `programs` programs."""
    splits = max(1, min(triton.cdiv(length, LEAST_KEYS), MOST_PROGRAMS // programs))
    keys = triton.cdiv(triton.cdiv(length, splits), columns) * columns
    return keys, max(triton.cdiv(length, keys), 1) if keys else 1


def tile_sizes(head_dim: int, dtype: torch.dtype) -> dict[str, int]:
    """Queries and keys per tile, and components that are multiplied at once."""
    if dtype == torch.float32:  # no tensor cores: both factors of a product are in registers
        return {"ROWS": 32, "COLUMNS": 32, "WIDTH": 16}
    if head_dim > 128:
        return {"ROWS": 32, "COLUMNS": 32, "WIDTH": 64}
    width = triton.next_power_of_2(max(head_dim, 16))
    return {"ROWS": 64, "COLUMNS": 64, "WIDTH": 32 if width == 64 else width}  # with WIDTH 64, sm_120 spills registers


@triton.jit
def load_rows(
    matrix: tl.tensor, stride: tl.tensor, at: tl.tensor, count: tl.tensor, lane: tl.tensor, D: tl.constexpr,
    ROWS: tl.constexpr, WIDTH: tl.constexpr,
) -> tl.tensor:  # fmt: skip
    """Components lane … lane+WIDTH-1 of rows at … at+ROWS-1 of a matrix [count, D], zeros beyond: [ROWS, WIDTH]."""
    rows = at + tl.arange(0, ROWS)[:, None]
    lanes = lane + tl.arange(0, WIDTH)[None, :]
    return tl.load(matrix + rows.to(tl.int64) * stride + lanes, mask=(rows < count) & (lanes < D), other=0.0)


@triton.jit
def tile_logits(
    x: tl.tensor, y: tl.tensor, queries: tl.tensor, keys: tl.tensor, query_stride: tl.tensor, key_stride: tl.tensor,
    at: tl.tensor, first: tl.tensor, q: tl.tensor, length: tl.tensor, start: tl.tensor, seeing: tl.tensor,
    scaling: tl.tensor, D: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, WIDTH: tl.constexpr,
) -> tl.tensor:  # fmt: skip
    """Logits of queries from `at` on and keys from `first` on, -inf for hidden keys: float32 [ROWS, COLUMNS].

    x [ROWS, WIDTH] and y [COLUMNS, WIDTH] are the first components of these queries and keys.
    """
    products = dot(x, tl.trans(y))
    for lane in tl.static_range(WIDTH, D, WIDTH):
        more = load_rows(queries, query_stride, at, q, lane, D, ROWS, WIDTH)
        products += dot(more, tl.trans(load_rows(keys, key_stride, first, length, lane, D, COLUMNS, WIDTH)))
    rows = at + tl.arange(0, ROWS)[:, None]
    columns = first + tl.arange(0, COLUMNS)[None, :]
    seen = (columns < length) & (rows < q) & ((rows < seeing) | (columns <= start + rows))
    return tl.where(seen, products * scaling, -float("inf"))


@triton.jit(do_not_specialize=["length", "start", "seeing", "split_keys"])
def log_sums(
    queries: tl.tensor, keys: tl.tensor, parts: tl.tensor, query_head_stride: tl.tensor, query_stride: tl.tensor,
    key_head_stride: tl.tensor, key_stride: tl.tensor, q: tl.tensor, length: tl.tensor, start: tl.tensor,
    seeing: tl.tensor, scaling: tl.tensor, group: tl.tensor, split_keys: tl.tensor, D: tl.constexpr, ROWS: tl.constexpr,
    COLUMNS: tl.constexpr, WIDTH: tl.constexpr,
) -> None:  # fmt: skip
    """Write parts [splits, heads, q]: log-sum-exps of one tile of queries of one head over one split of keys; -inf for
    queries that see no key of the split."""
    at = tl.program_id(0) * ROWS
    head = tl.program_id(1)
    begin = tl.program_id(2) * split_keys
    rows = at + tl.arange(0, ROWS)
    queries += head.to(tl.int64) * query_head_stride
    keys += (head // group).to(tl.int64) * key_head_stride
    x = load_rows(queries, query_stride, at, q, 0, D, ROWS, WIDTH)
    end = length
    if at >= seeing:
        end = tl.minimum(length, start + at + ROWS)
    end = tl.minimum(end, begin + split_keys)
    high = tl.full([ROWS], -float("inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    for first in range(begin, end, COLUMNS):
        y = load_rows(keys, key_stride, first, length, 0, D, COLUMNS, WIDTH)
        logits = tile_logits(
            x,
            y,
            queries,
            keys,
            query_stride,
            key_stride,
            at,
            first,
            q,
            length,
            start,
            seeing,
            scaling,
            D,
            ROWS,
            COLUMNS,
            WIDTH,
        )
        higher = tl.maximum(high, tl.max(logits, 1))
        # rows that have seen no key yet keep a total of 0
        shift = tl.where(higher == -float("inf"), 0.0, higher)
        total = total * tl.exp(high - shift) + tl.sum(tl.exp(logits - shift[:, None]), 1)
        high = higher
    row = (tl.program_id(2) * tl.num_programs(1) + head).to(tl.int64) * q
    tl.store(parts + row + rows, high + tl.log(total), mask=rows < q)


@triton.jit
def joined(
    parts: tl.tensor, head: tl.tensor, heads: tl.tensor, rows: tl.tensor, q: tl.tensor, splits: tl.tensor,
    ROWS: tl.constexpr,
) -> tl.tensor:  # fmt: skip
    """Log-sum-exps [ROWS] over all splits of parts [splits, heads, q]."""
    high = tl.full([ROWS], -float("inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    for split in range(0, splits):
        row = (split * heads + head).to(tl.int64) * q
        part = tl.load(parts + row + rows, mask=rows < q, other=0.0)
        higher = tl.maximum(high, part)
        shift = tl.where(higher == -float("inf"), 0.0, higher)
        total = total * tl.exp(high - shift) + tl.exp(part - shift)
        high = higher
    return high + tl.log(total)


@triton.jit(do_not_specialize=["length", "start", "seeing", "splits"])
def sum_columns(
    queries: tl.tensor, keys: tl.tensor, parts: tl.tensor, lse: tl.tensor, weights: tl.tensor, sums: tl.tensor,
    query_head_stride: tl.tensor, query_stride: tl.tensor, key_head_stride: tl.tensor, key_stride: tl.tensor,
    sum_stride: tl.tensor, q: tl.tensor, length: tl.tensor, start: tl.tensor, seeing: tl.tensor, scaling: tl.tensor,
    group: tl.tensor, splits: tl.tensor, D: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    WIDTH: tl.constexpr,
) -> None:  # fmt: skip
    """Add the queries' attention to one tile of keys of one head to sums [heads, length]. The programs of the first
    tile of keys, which all queries see, also write lse [heads, q]."""
    first = tl.program_id(0) * COLUMNS
    head = tl.program_id(1)
    columns = first + tl.arange(0, COLUMNS)
    queries += head.to(tl.int64) * query_head_stride
    keys += (head // group).to(tl.int64) * key_head_stride
    y = load_rows(keys, key_stride, first, length, 0, D, COLUMNS, WIDTH)
    begin = 0
    if seeing == 0:  # the queries before these keys do not see them
        begin = tl.maximum(first - start, 0) // ROWS * ROWS
    total = tl.zeros([COLUMNS], tl.float32)
    for at in range(begin, q, ROWS):
        rows = at + tl.arange(0, ROWS)
        x = load_rows(queries, query_stride, at, q, 0, D, ROWS, WIDTH)
        logits = tile_logits(
            x,
            y,
            queries,
            keys,
            query_stride,
            key_stride,
            at,
            first,
            q,
            length,
            start,
            seeing,
            scaling,
            D,
            ROWS,
            COLUMNS,
            WIDTH,
        )
        log_sum = joined(parts, head, tl.num_programs(1), rows, q, splits, ROWS)
        if first == 0:
            tl.store(lse + head.to(tl.int64) * q + rows, log_sum, mask=rows < q)
        shares = tl.exp(logits - tl.where(rows < q, log_sum, 0.0)[:, None])
        if weights is not None:
            shares *= tl.load(weights + rows, mask=rows < q, other=0.0)[:, None]
        total += tl.sum(shares, 0)
    where = sums + head.to(tl.int64) * sum_stride + columns
    tl.store(where, tl.load(where, mask=columns < length, other=0.0) + total, mask=columns < length)
