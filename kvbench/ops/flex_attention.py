"""Attention of a prompt with a soft cap or sinks on a GPU: torch's flex_attention, which makes no weights in memory.

flex_attention and the compiler are imported only when they are needed: most runs need neither of them.
"""

import warnings
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from kvbench.ops.operator import kernels_on
from kvbench.ops.softmax import Softmax

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask

failures: list[str] = []  # failures of the compiler; after the first, the reference computes
BLOCK = 128  # queries, and keys, that are read or skipped together


def flexible(query: Tensor) -> bool:
    """Whether flex_attention computes query [rows, num_attention_heads, q, head_dim]: it is compiled by Triton."""
    return query.shape[2] > 1 and query.is_cuda and kernels_on(query.device) == "triton" and not failures


def flexible_attention(
    query: Tensor, keys: Tensor, values: Tensor, scaling: Softmax, window: int | None = None
) -> Tensor | None:
    """`bent_attention` of the last q tokens of keys, values [rows, num_key_value_heads, len, head_dim]: causal; with a
    window each query sees its own token and the window - 1 tokens before it.

    A sink takes the share exp(sink) / (exp(sink) + exp(log-sum-exp)) of the attention and does not change the
    proportions of the rest. Returns None, with a warning, if torch cannot compile it: then the slower reference runs.
    """
    from torch._dynamo.exc import TorchDynamoException

    try:
        out, lse = attend(query.device.type)(
            query,
            keys,
            values,
            score_mod=None if scaling.softcap is None else capping(number(scaling.softcap, query.device)),
            block_mask=causal_blocks(query.shape[2], keys.shape[2], window, query.device),
            scale=scaling.scaling,
            enable_gqa=keys.shape[1] != query.shape[1],
            return_lse=True,
        )
    except TorchDynamoException as error:
        failures.append(f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}")
        warnings.warn(
            f"flex_attention does not compile here, a slower reference is used: {failures[-1]}",
            stacklevel=2,
        )
        return None
    if scaling.sinks is None:
        return out
    return out * torch.sigmoid(lse - scaling.sinks.to(lse)[:, None])[..., None].to(out.dtype)


@cache
def attend(device: str) -> Callable[..., Any]:
    """flex_attention, compiled for a GPU."""
    from torch.nn.attention.flex_attention import flex_attention

    attention: Callable[..., Any] = flex_attention
    return torch.compile(attention, dynamic=True) if device == "cuda" else attention


def capping(cap: Tensor) -> Callable[..., Tensor]:
    """Puts logits under a soft cap []. It is a tensor: of a number, with dynamic=True, torch 2.11 and 2.13 make a
    LoweringException (unbacked_bindings)."""

    def capped(score: Tensor, row: Tensor, head: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return cap * torch.tanh(score / cap)

    return capped


@cache
def number(value: float, device: torch.device) -> Tensor:
    """A number as a float32 tensor [] of the device, which a GPU need not wait for more than once."""
    return torch.tensor(value, dtype=torch.float32, device=device)


def causal_blocks(q: int, length: int, window: int | None, device: torch.device) -> "BlockMask":
    """The keys that each of the last q of `length` tokens sees, in blocks: q · length / BLOCK² numbers."""
    from torch.nn.attention.flex_attention import BlockMask

    window = length if window is None else window
    # Tensors, since Python's numbers would be part of the compiled code.
    positions = torch.arange(length - q, length, device=device)
    before = positions - window

    def sees(row: Tensor, head: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return (j <= positions[i]) & (j > before[i])

    first = length - q + BLOCK * torch.arange(-(-q // BLOCK), device=device)[:, None]  # query of a block
    last = (first + BLOCK - 1).clamp(max=length - 1)
    low = BLOCK * torch.arange(-(-length // BLOCK), device=device)  # key of a block
    high = low + BLOCK - 1
    visible = (low <= last) & (high > first - window)
    inside = (first + BLOCK <= length) & (high < length)  # no query or key of the block is beyond the end
    all_seen = inside & (high <= first) & (low > last - window)
    parts = []
    for blocks in (visible & ~all_seen, all_seen):
        parts.append(blocks.sum(dim=1, dtype=torch.int32)[None, None])
        parts.append(blocks.int().argsort(dim=1, descending=True, stable=True).int()[None, None])
    return BlockMask.from_kv_blocks(*parts, BLOCK_SIZE=BLOCK, mask_mod=sees, seq_lengths=(q, length))
