"""The attention that every key receives inside its block of tokens, from queries before and after it (Compactor)."""

import torch
from torch import Tensor


def block_sums(queries: Tensor, keys: Tensor, block: int, filled: bool = False) -> Tensor:
    """Attention per key, summed over the queries of its block: float32 [num_attention_heads, len].

    queries [num_attention_heads, len, head_dim] and keys [num_key_value_heads, len, head_dim] of the same tokens. Each
    block of `block` tokens attends to itself without a mask. Logits are not scaled, as in kvpress. The last block may
    be shorter, or `filled` with queries and keys of zeros, which take part. Only one block's weights exist at a time.
    """
    heads, length, _ = queries.shape
    group = heads // len(keys)
    sums = torch.empty(heads, length, device=keys.device)
    for start in range(0, length, block):
        tokens = slice(start, min(start + block, length))
        logits = queries[:, tokens].unflatten(0, (len(keys), group)).float() @ keys[:, None, tokens].float().mT
        if missing := (block - logits.shape[-1]) * filled:
            logits = torch.nn.functional.pad(logits, (0, missing, 0, missing))
        sums[:, tokens] = logits.softmax(dim=-1).sum(dim=-2).flatten(0, 1)[:, : tokens.stop - start]
    return sums
