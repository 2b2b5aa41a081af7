"""Codebook caches of given sizes with random contents, for testing the operators over them."""

import torch

from kvbench.cache.reserve_ratio import Kept
from kvbench.methods.spindlekv.codebook.layer_cache import CodebookLayer
from kvbench.methods.spindlekv.codebook.side import Side
from kvbench.methods.spindlekv.codebook.streams import Raw, Streams
from kvbench.ops.bits import pack_bits
from tests.support.codebook_layers import ROPE


def random_side(tokens, entries, head_dim, dtype, generator, reconstruct=True, bound=0.9):
    """`tokens` of each stream, `entries` of each book."""
    rows = torch.randn(sum(entries), head_dim, generator=generator)
    rows = torch.nn.functional.normalize(rows, dim=-1) if reconstruct else rows
    own = [entries[stream * len(entries) // len(tokens)] for stream in range(len(tokens))]
    references = [
        torch.randint(max(size, 1), (count,), generator=generator) for size, count in zip(own, tokens, strict=True)
    ]
    magnitudes = torch.rand(sum(tokens), generator=generator).add_(0.5).to(dtype) if reconstruct else None
    return Side(rows.to(dtype), torch.tensor(entries), list(entries), references, magnitudes, bound)


def random_cache(
    tokens, entries, windows, group, head_dim=64, dtype=torch.float32, bits=(), runs=(), reconstruct=True, rope=ROPE,
    seed=0, bound=0.9,
):  # fmt: skip
    """A cache of streams with `tokens` coded tokens and `group` query heads each, and `windows` raw tokens per KV head.

    Streams in `bits` hide some tokens from some query heads; the tokens of those in `runs` are the first ones.
    """
    generator = torch.Generator().manual_seed(seed)
    prompt = max(tokens) * 2 + max(windows)
    sides = [random_side(tokens, entries, head_dim, dtype, generator, reconstruct, bound) for _ in range(2)]
    positions, offsets, packed, places = [], [], [], []
    for stream, count in enumerate(tokens):
        offsets.append(-1 if stream in runs else sum(map(len, positions)))
        if stream not in runs:
            positions.append(torch.randperm(max(tokens) * 2, generator=generator)[:count].sort().values)
        places.append(sum(map(len, packed)) if stream in bits else -1)
        if stream in bits:
            packed.append(pack_bits(torch.rand(group, count, generator=generator) < 0.5).flatten())
    kept = torch.cat(positions).to(torch.uint16) if positions else None
    streams = Streams(list(tokens), kept, offsets, torch.cat(packed) if packed else None, places)
    raw = Raw(*torch.randn(2, sum(windows), head_dim, generator=generator).to(dtype), list(windows))
    return CodebookLayer(*sides, streams, raw, prompt, Kept.tokens(1, 1, 1, 1), rope)
