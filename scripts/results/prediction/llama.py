"""Llama-3-8B's shape: what a forward pass multiplies, and what a decoded token reads."""

from kvbench.models.flops import token_bytes

P, L, H, K, D = 8.03e9, 32, 32, 8, 128  # parameters, layers, query heads, KV heads, head_dim
EMBEDDING = 128256 * 4096  # of P; a token reads one row of it
# of P, those that a prompt's tokens are multiplied with: without the logits' as well, which are of its last token
MULTIPLIED = P - 2 * EMBEDDING
WEIGHT_BYTES = 2 * (P - EMBEDDING)  # that a decoded token reads


def cache_bytes(n: int, share: float = 1.0) -> float:
    return share * n * token_bytes(L, K, D, itemsize=2)
