"""Attention of a prompt with its queries' log-sum-exps, which torch's kernels compute but usually do not return.

Column sums need the log-sum-exps; without them QKᵀ is computed again. All kernels return the natural logarithm of the
sum of exp(QKᵀ·scaling), in float32. This is documented for FlashAttention; torch's context parallelism
(torch.distributed.tensor.experimental) relies on it for the three kernels on GPUs, `attention_in_parts` for the kernel
on CPUs.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.backends.cuda import SDPAParams, can_use_flash_attention

from kvbench.ops.attention import dense_attention, lower_right
from kvbench.ops.sdpa import sdpa_backend, ungrouped
from kvbench.ops.softmax import Scaling, Softmax

aten = torch.ops.aten
ALIGNED = 8  # torch pads a head_dim that is not a multiple of 8 for these kernels


class AttentionOutput(NamedTuple):
    out: Tensor  # like the query
    log_sums: Tensor | None  # float32 [.., num_attention_heads, q]; None: the kernel does not return them


def attention_and_log_sums(query: Tensor, keys: Tensor, values: Tensor, scaling: Scaling) -> AttentionOutput:
    """`dense_attention`, by the same kernel, and the log-sum-exps of its queries, float32 [1, num_attention_heads, q].

    Log-sum-exps are None with a soft cap or sinks, for a single query, and if torch's backend does not return them.
    """
    if isinstance(scaling, Softmax) or query.shape[2] == 1:
        return AttentionOutput(dense_attention(query, keys, values, scaling), None)
    if flash_on_cpu(query, keys, values):
        out, log_sums = cpu(query, keys, values, scaling)
        return AttentionOutput(out, log_sums.float())
    if not query.is_cuda or query.shape[3] % ALIGNED:
        return AttentionOutput(dense_attention(query, keys, values, scaling), None)
    tensors = ungrouped(query, keys, values)
    kernel = KERNELS.get(backend(*tensors))
    if kernel is None:
        return AttentionOutput(dense_attention(query, keys, values, scaling), None)
    out, log_sums = kernel(*tensors, scaling)
    rows, heads, q, _ = tensors[0].shape
    log_sums = log_sums.reshape(rows, heads, -1)[..., :q]  # one backend pads queries, another has a further dimension
    return AttentionOutput(out.reshape(*query.shape[:-1], -1), log_sums.reshape(query.shape[:3]))


def backend(query: Tensor, keys: Tensor, values: Tensor) -> str:
    """The backend of `dense_attention` if it may be one of `KERNELS`; after earlier tokens only flash attention may."""
    if query.shape[2] == keys.shape[2]:
        return sdpa_backend(query, keys, values)
    grouped = query.shape[1] != keys.shape[1]
    return (
        "flash_attention" if can_use_flash_attention(SDPAParams(query, keys, values, None, 0.0, False, grouped)) else ""
    )


class Kernel(NamedTuple):
    """The results of a kernel."""

    out: Tensor
    log_sums: Tensor


class Parts(NamedTuple):
    out: Tensor  # like the query
    log_sums: list[Tensor]  # log-sum-exps of each part, at least float32 [1, num_attention_heads, q]


def attention_in_parts(query: Tensor, parts: Sequence[tuple[Tensor, Tensor]], scaling: Scaling) -> Parts | None:
    """Attention of query [1, num_attention_heads, q, head_dim] over parts of all keys and values.

    A part is keys and values [1, num_key_value_heads, len, head_dim], len > 0. The last part holds the queries' own
    tokens, to which they attend causally; they see all tokens of every other part. There is no mask, and no work for
    hidden keys. None if torch's CPU kernel does not compute this.
    """
    if isinstance(scaling, Softmax) or query.is_cuda or not all(flash_on_cpu(query, *part) for part in parts):
        return None
    last = len(parts) - 1
    attended = [cpu(query, *part, scaling, causal=at == last) for at, part in enumerate(parts)]
    total = torch.stack([lse for _, lse in attended]).logsumexp(dim=0)
    shares = torch.stack([part * (lse - total).exp_()[..., None] for part, lse in attended])  # at least float32
    return Parts(shares.sum(dim=0).to(query.dtype), [lse for _, lse in attended])


def flash_on_cpu(query: Tensor, keys: Tensor, values: Tensor) -> bool:
    """Whether torch's attention of these tensors on a CPU is its flash attention."""
    return query.device.type == "cpu" and sdpa_backend(query, keys, values) == "flash_attention"


def cpu(query: Tensor, keys: Tensor, values: Tensor, scaling: float, causal: bool = True) -> Kernel:
    """Flash attention on a CPU. causal: the last query sees the last key; otherwise every query sees all keys.

    The log-sum-exps of float64 are float64.
    """
    mask, q, length = None, query.shape[2], keys.shape[2]
    if causal and q < length:  # the kernel's causality needs as many keys as queries
        mask = query.new_zeros(q, length).masked_fill_(~lower_right(q, length, query.device), float("-inf"))
    call = aten._scaled_dot_product_flash_attention_for_cpu.default
    return Kernel(*call(query, keys, values, 0.0, causal and mask is None, attn_mask=mask, scale=scaling))


def flash(query: Tensor, keys: Tensor, values: Tensor, scaling: float) -> Kernel:
    """Causal flash attention on a GPU: the last query sees the last key."""
    call = aten._scaled_dot_product_flash_attention.default
    return Kernel(*call(query, keys, values, 0.0, True, False, scale=scaling)[:2])


def efficient(query: Tensor, keys: Tensor, values: Tensor, scaling: float) -> Kernel:
    call = aten._scaled_dot_product_efficient_attention.default
    return Kernel(*call(query, keys, values, None, True, 0.0, True, scale=scaling)[:2])


def cudnn(query: Tensor, keys: Tensor, values: Tensor, scaling: float) -> Kernel:
    call = aten._scaled_dot_product_cudnn_attention.default
    return Kernel(*call(query, keys, values, None, True, 0.0, True, False, scale=scaling)[:2])


KERNELS = {"flash_attention": flash, "efficient_attention": efficient, "cudnn_attention": cudnn}
