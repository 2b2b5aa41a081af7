"""torch's attention, without backends that make n × n weights of a prompt or a plan for each decoded token."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend

NAMES: dict[int, str] = {int(backend): name.lower() for name, backend in SDPBackend.__members__.items()}
MATH = NAMES[int(SDPBackend.MATH)]  # makes the weights of all queries at once: n × n for a prompt
TRIED = 128  # tokens of the prompt that tests the choice: it depends on heads, head_dim, dtype and device


def sdpa(
    query: Tensor, keys: Tensor, values: Tensor, scaling: float, mask: Tensor | None = None, causal: bool = False
) -> Tensor:
    """scaled_dot_product_attention of query [rows, num_attention_heads, q, head_dim] over keys, values [rows, heads,
    len, …], with the grouping of heads and the backends that are fast on a GPU."""
    shape = query.shape[:-1]
    if query.shape[2] > 1:
        query, keys, values = ungrouped(query, keys, values, mask)
    grouped = keys.shape[1] != query.shape[1]
    with backends(query):
        out = F.scaled_dot_product_attention(
            query, keys, values, attn_mask=mask, scale=scaling, is_causal=causal, enable_gqa=grouped
        )
    return out if out.shape[:-1] == shape else out.reshape(*shape, -1)


def backends(query: Tensor) -> AbstractContextManager[None]:
    """All of torch's backends, without cuDNN for one query per head on a GPU: cuDNN makes a plan for each number of
    keys, so that each decoded token would cost tens of milliseconds of host time."""
    decoding = query.shape[2] == 1 and query.is_cuda and torch.backends.cuda.cudnn_sdp_enabled()
    return without_cudnn() if decoding else nullcontext()


@contextmanager
def without_cudnn() -> Iterator[None]:
    before = torch.backends.cuda.cudnn_sdp_enabled()
    torch.backends.cuda.enable_cudnn_sdp(False)
    try:
        yield
    finally:
        torch.backends.cuda.enable_cudnn_sdp(before)


def sdpa_backend(query: Tensor, keys: Tensor, values: Tensor) -> str:
    """The backend of `sdpa` for these tensors [rows, heads, len, head_dim], causal for several queries.

    math, flash_attention, efficient_attention, cudnn_attention or overrideable. It does not read from the device.
    """
    grouped = query.shape[1] != keys.shape[1]
    causal = query.shape[2] > 1
    with backends(query):
        return NAMES[torch._fused_sdp_choice(query, keys, values, is_causal=causal, enable_gqa=grouped)]


def prompt_backend(heads: int, kv_heads: int, head_dim: int, dtype: torch.dtype, device: torch.device | str) -> str:
    """The backend for a prompt's attention of `heads` query heads over `kv_heads` KV heads."""
    query, keys = (torch.empty(1, count, TRIED, head_dim, dtype=dtype, device=device) for count in (heads, kv_heads))
    return sdpa_backend(*ungrouped(query, keys, keys))


def decoding_backend(heads: int, kv_heads: int, head_dim: int, dtype: torch.dtype, device: torch.device | str) -> str:
    """The backend for the attention of a decoded token over a dense cache."""
    query = torch.empty(1, heads, 1, head_dim, dtype=dtype, device=device)
    keys = torch.empty(1, kv_heads, TRIED, head_dim, dtype=dtype, device=device)
    return sdpa_backend(query, keys, keys)


class QKV(NamedTuple):
    query: Tensor
    keys: Tensor
    values: Tensor


def ungrouped(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None = None) -> QKV:
    """`query`, `keys` and `values` with as many KV heads as query heads if only this avoids `math`; else unchanged.

    On GPUs the backend for float32, for masks of elements, and for half precision before Ampere does not take grouped
    heads. Each KV head then becomes a row of the batch, [rows · num_key_value_heads, group, len, head_dim], with its
    keys and values expanded without a copy.
    """
    if keys.shape[1] == query.shape[1] or not query.is_cuda:
        return QKV(query, keys, values)
    masked = type(mask) is Tensor  # other masks, such as `causal_lower_right`, have no elements
    if masked or sdpa_backend(query, keys, values) == MATH:
        return as_rows(query, keys, values)
    return QKV(query, keys, values)


def as_rows(query: Tensor, keys: Tensor, values: Tensor) -> QKV:
    """query [rows, num_attention_heads, q, head_dim] with the KV heads of keys and values [rows, num_key_value_heads,
    len, head_dim] as further rows: [rows · num_key_value_heads, group, …] each."""
    group = query.shape[1] // keys.shape[1]
    query = query.unflatten(1, (keys.shape[1], group)).flatten(0, 1)
    return QKV(query, *(x.flatten(0, 1)[:, None].expand(-1, group, -1, -1) for x in (keys, values)))
