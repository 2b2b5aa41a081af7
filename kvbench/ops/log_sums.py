"""Attention of a prompt with its queries' log-sum-exps, which torch's GPU kernels have at hand and else keep.

Column sums need them; without them QKᵀ is computed once more. All three kernels return the natural logarithm of the
sum of exp(QKᵀ·scaling), in float32: for FlashAttention's that is documented, and torch's own context parallelism
(torch.distributed.tensor.experimental) merges parts of attention by those of all three.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.backends.cuda import SDPAParams, can_use_flash_attention

from kvbench.ops.attention import dense_attention
from kvbench.ops.sdpa import sdpa_backend, ungrouped
from kvbench.ops.softmax import Scaling, Softmax

aten = torch.ops.aten
ALIGNED = 8  # torch pads other head_dims for these kernels


class AttentionOutput(NamedTuple):
    out: Tensor  # like the query
    log_sums: Tensor | None  # float32 [.., num_attention_heads, q], where the kernel has them


def attention_and_log_sums(query: Tensor, keys: Tensor, values: Tensor, scaling: Scaling) -> AttentionOutput:
    """`dense_attention`, by the same kernel, and the log-sum-exps of its queries, float32 [1, num_attention_heads, q].

    None in place of these on a CPU, whose column sums make their own; with a soft cap or sinks; for one query; and
    where torch chooses a backend that has none.
    """
    if isinstance(scaling, Softmax) or not query.is_cuda or query.shape[2] == 1 or query.shape[3] % ALIGNED:
        return AttentionOutput(dense_attention(query, keys, values, scaling), None)
    tensors = ungrouped(query, keys, values)
    kernel = KERNELS.get(backend(*tensors))
    if kernel is None:
        return AttentionOutput(dense_attention(query, keys, values, scaling), None)
    out, log_sums = kernel(*tensors, scaling)
    rows, heads, q, _ = tensors[0].shape
    log_sums = log_sums.reshape(rows, heads, -1)[..., :q]  # one pads queries, one has a dimension more
    return AttentionOutput(out.reshape(query.shape), log_sums.reshape(query.shape[:3]))


def backend(query: Tensor, keys: Tensor, values: Tensor) -> str:
    """That of `dense_attention` if it is one of `KERNELS`; for a block after other tokens only flash attention is."""
    if query.shape[2] == keys.shape[2]:
        return sdpa_backend(query, keys, values)
    grouped = query.shape[1] != keys.shape[1]
    return (
        "flash_attention" if can_use_flash_attention(SDPAParams(query, keys, values, None, 0.0, False, grouped)) else ""
    )


class Kernel(NamedTuple):
    """What a kernel returns."""

    out: Tensor
    log_sums: Tensor


def flash(query: Tensor, keys: Tensor, values: Tensor, scaling: float) -> Kernel:
    """Here causal means that the last query sees the last key."""
    call = aten._scaled_dot_product_flash_attention.default
    return Kernel(*call(query, keys, values, 0.0, True, False, scale=scaling)[:2])


def efficient(query: Tensor, keys: Tensor, values: Tensor, scaling: float) -> Kernel:
    call = aten._scaled_dot_product_efficient_attention.default
    return Kernel(*call(query, keys, values, None, True, 0.0, True, scale=scaling)[:2])


def cudnn(query: Tensor, keys: Tensor, values: Tensor, scaling: float) -> Kernel:
    call = aten._scaled_dot_product_cudnn_attention.default
    return Kernel(*call(query, keys, values, None, True, 0.0, True, False, scale=scaling)[:2])


KERNELS = {"flash_attention": flash, "efficient_attention": efficient, "cudnn_attention": cudnn}
