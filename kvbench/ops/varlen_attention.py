"""Packed attention by torch's kernel for sequences of different lengths, `torch.nn.attention.varlen`."""

from functools import cache

import torch
from torch import Tensor

from kvbench.ops.gpu import is_recent, multiprocessors
from kvbench.ops.segments import Segments

HALF = (torch.float16, torch.bfloat16)
LARGEST_HEAD = 256  # largest head_dim of flash attention
MOST_SPLITS = 128  # the kernel's limit
FEWEST_KEYS = 256  # per split: fewer keys take less time than a program's start


def varlen_attends(query: Tensor, values: Tensor) -> bool:
    """Whether torch's kernel takes this query [rows, num_attention_heads, q, head_dim], values [capacity, width].

    Flash attention takes half precision, heads of up to 256 channels (multiples of 8), and values as wide as keys.
    Several queries per head would need causality aligned with the last key, which torch does not document. The kernel
    runs on NVIDIA GPUs from Ampere on; its counterpart for AMD refuses lengths shorter than the sequences' places.
    """
    _, _, q, head_dim = query.shape
    takes = q == 1 and query.dtype in HALF and head_dim % 8 == 0 and head_dim <= LARGEST_HEAD
    takes = takes and values.shape[1] == head_dim
    return takes and _takes_lengths() and is_recent(query.device)


@cache
def _takes_lengths() -> bool:
    """Whether the kernel of this torch takes lengths shorter than the sequences' places, and a number of splits."""
    arguments = {argument.name for argument in torch.ops.aten._flash_attention_forward.default._schema.arguments}
    return {"seqused_k", "num_splits"} <= arguments


def varlen_attention(query: Tensor, keys: Tensor, values: Tensor, segments: Segments, scaling: float) -> Tensor:
    """`packed_attention` of one query per head: each segment is a sequence with one head of keys.

    If all segments have equally large groups of query heads, a group is one query with `group` heads, and the kernel
    splits its keys. Otherwise the query heads of a group are queries of the sequence, which all see every key.

    It calls the operator behind `torch.nn.attention.varlen` and saves the tensors that this function makes per call.
    """
    rows, num_heads, _, head_dim = query.shape
    starts, lengths, heads, group, longest = segments
    even = rows * num_heads == group * len(lengths)
    if even:
        queries = query.reshape(len(lengths), group, head_dim)
        ends, most = sequence_ends(len(lengths), query.device), 1
    else:
        queries, ends, most = query.reshape(rows * num_heads, 1, head_dim), heads, group
    out = torch.ops.aten._flash_attention_forward.default(
        queries,
        keys[:, None],
        values[:, None],
        ends,
        starts,
        most,
        longest,
        0.0,  # dropout
        False,  # causal: the only query sees every key
        False,  # no mask for debugging
        scale=scaling,
        seqused_k=lengths,
        num_splits=splits(longest, len(lengths) // rows, multiprocessors(query.device)),
    )[0]
    return out.reshape(rows, num_heads, 1, values.shape[1])


def splits(longest: int, segments: int, multiprocessors: int) -> int:
    """The number of parts in which a sequence's keys are read. A row has `segments` sequences of up to `longest` keys.

    The kernel's choice assumes equally long sequences that fill the GPU together: beside many short rows, only one or
    two blocks would read each head of a long row. Two blocks per multiprocessor are enough for the sequences of a row,
    and cost other rows little: a part without keys ends at once, and a part with `FEWEST_KEYS` or more keys writes only
    a few per cent of the bytes that it reads.
    """
    return max(1, min(MOST_SPLITS, -(-longest // FEWEST_KEYS), -(-2 * multiprocessors // segments)))


def sequence_ends(count: int, device: torch.device) -> Tensor:
    """0 to count, int32: the starts of sequences of one query each. The tensor is never freed, since a CUDA graph may
    read it. It is not cached while a graph is recorded, since only the repeated graph would fill it."""
    if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
        return _ends(count, device)
    return _kept_ends(count, device)


def _ends(count: int, device: torch.device) -> Tensor:
    return torch.arange(count + 1, dtype=torch.int32, device=device)


_kept_ends = cache(_ends)
