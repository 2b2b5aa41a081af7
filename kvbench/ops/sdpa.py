"""Which of torch's attention backends computes a prompt's attention, and how float32 over grouped heads gets one that
makes no n × n weights."""

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend

NAMES = {int(backend): name.lower() for name, backend in SDPBackend.__members__.items()}
MATH = NAMES[int(SDPBackend.MATH)]  # makes the weights of all queries at once: n × n of them for a prompt
TRIED = 128  # tokens of a prompt to try the choice on: it depends on heads, head_dim, dtype and device


def sdpa_backend(query: Tensor, keys: Tensor, values: Tensor) -> str:
    """The backend of scaled_dot_product_attention for causal attention over these tensors [rows, heads, len, head_dim].

    math, flash_attention, efficient_attention, cudnn_attention or overrideable. Reads nothing from the device.
    """
    grouped = query.shape[1] != keys.shape[1]
    return NAMES[torch._fused_sdp_choice(query, keys, values, is_causal=True, enable_gqa=grouped)]


def prompt_backend(heads: int, kv_heads: int, head_dim: int, dtype: torch.dtype, device: torch.device | str) -> str:
    """The backend for a prompt's attention of `heads` query heads over `kv_heads` KV heads."""
    query, keys = (torch.empty(1, count, TRIED, head_dim, dtype=dtype, device=device) for count in (heads, kv_heads))
    return sdpa_backend(*ungrouped(query, keys, keys)[:3])


def ungrouped(query: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """`query`, `keys` and `values` in a form with as many KV heads as query heads, where only that avoids `math`.

    On GPUs the backend that takes float32 does not take grouped heads. Each KV head then becomes a row of the batch,
    [rows · num_key_value_heads, group, len, head_dim], in which its keys and values repeat without a copy. Elsewhere
    the tensors are returned as they are.
    """
    grouped = query.shape[1] != keys.shape[1]
    if not (grouped and query.is_cuda and query.dtype == torch.float32 and sdpa_backend(query, keys, values) == MATH):
        return query, keys, values
    return as_rows(query, keys, values)


def as_rows(query: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """query [rows, num_attention_heads, q, head_dim] with the KV heads of keys and values [rows, num_key_value_heads,
    len, head_dim] as further rows: [rows · num_key_value_heads, group, …] each."""
    group = query.shape[1] // keys.shape[1]
    query = query.unflatten(1, (keys.shape[1], group)).flatten(0, 1)
    return query, *(x.flatten(0, 1)[:, None].expand(-1, group, -1, -1) for x in (keys, values))
