"""Pairs of layers merged by MiniCache."""

import torch

from kvbench.methods import FullKV, MiniCache
from tests.support.tiny import random_state

DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def compress(state, **options):
    return FullKV(MiniCache(**options)).compress(state, state.n)


def pair_of(n=40, **options):
    """Two random layers, merged: the layers and their caches."""
    layer = {key: options.pop(key) for key in ("dtype", "head_dim", "kv_heads") if key in options}
    state = random_state(2, n=n, **layer)
    return state.layers, compress(state, start=0, **options)
