"""Packed attention by torch's kernel for sequences of different lengths, `torch.nn.attention.varlen`."""

import inspect
from functools import cache

import torch
from torch import Tensor

HALF = (torch.float16, torch.bfloat16)
LARGEST_HEAD = 256  # of flash attention


def varlen_attends(query: Tensor) -> bool:
    """Whether torch's kernel takes this query [rows, num_attention_heads, q, head_dim].

    Flash attention takes half precision and heads of up to 256 channels, in eights. Several queries a head would need
    causality that is aligned with the last key, which torch does not document.
    """
    _, _, q, head_dim = query.shape
    return q == 1 and query.dtype in HALF and head_dim % 8 == 0 and head_dim <= LARGEST_HEAD and _takes_lengths()


@cache
def _takes_lengths() -> bool:
    """Whether this torch has the kernel, and with lengths shorter than the places of the sequences."""
    try:
        from torch.nn.attention.varlen import varlen_attn
    except ImportError:
        return False
    return "seqused_k" in inspect.signature(varlen_attn).parameters


def varlen_attention(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    starts: Tensor,
    lengths: Tensor,
    heads: Tensor,
    group: int,
    longest: int,
    scaling: float,
) -> Tensor:
    """`packed_attention` of one query a head: each segment is a sequence with one head of keys.

    Where all segments have the same group of query heads, it is the sequence's one query with `group` heads, which the
    kernel splits over keys. Else the query heads of a group are queries of the sequence, which all see every key.
    """
    from torch.nn.attention.varlen import varlen_attn

    rows, num_heads, _, head_dim = query.shape
    even = rows * num_heads == group * len(lengths)
    if even:
        queries = query.reshape(len(lengths), group, head_dim)
        ends, most = torch.arange(len(lengths) + 1, dtype=torch.int32, device=query.device), 1
    else:
        queries, ends, most = query.reshape(rows * num_heads, 1, head_dim), heads, group
    out = varlen_attn(
        queries,
        keys[:, None],
        values[:, None],
        ends,
        starts,
        most,
        longest,
        scale=scaling,
        enable_gqa=even,
        seqused_k=lengths,
    )
    return out.reshape(rows, num_heads, 1, values.shape[1])
