"""Flash attention of sequences of different lengths, `aten::_flash_attention_forward`, sequence by sequence."""

import torch
from torch import Tensor


def plain_flash_attention_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cu_seq_q: Tensor,
    cu_seq_k: Tensor,
    max_q: int,
    max_k: int,
    dropout: float,
    causal: bool,
    debug: bool,
    *,
    scale: float,
    seqused_k: Tensor,
    num_splits: int,
) -> tuple[Tensor]:
    """query [T_q, H_q, D], key and value [T_k, H_kv, D]: each sequence's queries see its first `seqused_k` keys.

    The first of the operator's results. Heads are grouped where there are more of queries.
    """
    queries, kv_heads = query.shape[1], key.shape[1]
    assert queries % kv_heads == 0 and not (dropout or causal or debug) and 1 <= num_splits <= 128
    for cumulative in (cu_seq_q, cu_seq_k):
        assert cumulative.dtype == torch.int32 and (cumulative.diff() >= 0).all() and cumulative[0] == 0
    assert seqused_k.dtype == torch.int32 and (seqused_k <= cu_seq_k.diff()).all()
    assert len(seqused_k) == len(cu_seq_q) - 1 == len(cu_seq_k) - 1
    assert int(cu_seq_q[-1]) == len(query) and int(cu_seq_k[-1]) <= len(key)
    assert int(cu_seq_q.diff().max()) <= max_q and int(seqused_k.max()) <= max_k
    out = torch.empty_like(query)
    for i, used in enumerate(seqused_k.tolist()):
        rows = slice(int(cu_seq_q[i]), int(cu_seq_q[i + 1]))
        first = int(cu_seq_k[i])
        keys, values = (x[first : first + used].repeat_interleave(queries // kv_heads, 1) for x in (key, value))
        weights = torch.einsum("qhd,khd->hqk", query[rows], keys).mul(scale).softmax(-1)
        out[rows] = torch.einsum("hqk,khd->qhd", weights, values)
    return (out,)
