"""Attention over very many tokens, against references on the CPU that go through the keys in slices."""

import torch
from torch import Tensor

from kvbench.methods.kivi.quantised_attention import Stored, quantised_attention
from kvbench.ops.attention import dense_attention
from kvbench.ops.column_sums import column_sums
from kvbench.ops.operator import Kernels, use_kernels
from kvbench.ops.packed_attention import packed_attention
from kvbench.ops.quantise import CHANNELS, TOKENS, Quantiser, dequantise
from kvbench.ops.segments import Segments
from scripts.benchmarks.gpu.twins import ALLOWED, difference

SLICE = 16_384  # keys that a reference looks at at a time
KV_HEADS, GROUP, HEAD_DIM, WINDOW, RING, BITS, MEMBERS = 8, 4, 128, 32, 128, 4, 32
SCALING = HEAD_DIM**-0.5


def compared(n: int, device: str) -> dict:
    """Every way to attend to n tokens: how far it is from its reference, and what is allowed."""
    dtype = torch.float32 if device == "cpu" else torch.bfloat16
    generator = torch.Generator().manual_seed(n)
    query, window = (torch.randn(KV_HEADS * GROUP, q, HEAD_DIM, generator=generator).to(dtype) for q in (1, WINDOW))
    keys, values = (torch.randn(KV_HEADS, n, HEAD_DIM, generator=generator).to(dtype) for _ in range(2))
    on_device = [x.to(device) for x in (query, window, keys, values)]
    gaps = {}
    for name, (mine, expected) in pairs(on_device, (query, window, keys, values)).items():
        gap = difference(mine.cpu(), expected)
        gaps[name] = {"difference": gap, "over_allowed": gap / ALLOWED[mine.dtype]}
    return gaps


@torch.inference_mode()
def pairs(on_device: list[Tensor], on_cpu: tuple[Tensor, ...]) -> dict[str, tuple[Tensor, Tensor]]:
    """By name: the result on the device, and that of its reference from the same tensors on the CPU."""
    query, window, keys, values = on_cpu
    single, many = (attention(x, keys, values) for x in (query, window))
    results = {
        "dense, one query": (dense_attention(*(x[None] for x in (on_device[0], *on_device[2:])), SCALING)[0], single),
        "dense, a chunk": (dense_attention(*(x[None] for x in (on_device[1], *on_device[2:])), SCALING)[0], many),
    }
    for kernels in ("auto", "triton") if on_device[0].is_cuda else ("auto",):
        results[f"packed, kernels={kernels}"] = packed(on_device, kernels), single
    sums, lse = column_sums(on_device[1], on_device[2], SCALING, keys.shape[1] - WINDOW)
    expected_sums, expected_lse = votes(window, keys)
    results["votes of a window"] = sums, expected_sums
    results["log-sum-exps of a window"] = lse, expected_lse
    codes, restored = quantised(on_device[2], on_device[3])
    results["quantised"] = codes(on_device[0]), attention(query, *restored)
    return results


def packed(on_device: list[Tensor], kernels: Kernels) -> Tensor:
    query, _, keys, values = on_device
    n = keys.shape[1]
    place = torch.arange(KV_HEADS + 1, dtype=torch.int32, device=keys.device)
    flat = (x.flatten(0, 1) for x in (keys, values))
    lengths = torch.full((KV_HEADS,), n, dtype=torch.int32, device=keys.device)
    with use_kernels(kernels):
        return packed_attention(query[None], *flat, Segments(place * n, lengths, place * GROUP, GROUP, n), SCALING)[0]


def quantised(keys: Tensor, values: Tensor):
    """Attention over codes of all but the last tokens, at most RING, and on the CPU the rows that these stand for."""
    n, rows = keys.shape[1], []
    parts = []
    for x, axis, older in ((keys, TOKENS, n - n % RING), (values, CHANNELS, max(n - RING, 0))):
        stored = Quantiser(BITS, MEMBERS, axis)(x[:, :older])
        ring = x.new_zeros(KV_HEADS, RING, HEAD_DIM)
        ring[:, torch.arange(older, n, device=x.device) % RING] = x[:, older:]
        with use_kernels("torch"):
            restored = dequantise(*(part.cpu() for part in stored), BITS, MEMBERS, axis)
        rows.append(torch.cat([restored, x[:, older:].cpu()], dim=1))
        parts.append(Stored(*stored, ring, BITS))

    lengths = torch.full((KV_HEADS,), n, dtype=torch.int32, device=keys.device)

    def attend(query: Tensor) -> Tensor:
        return quantised_attention(query[None], *parts, lengths, n, RING, MEMBERS, SCALING)[0]

    return attend, rows


def attention(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """softmax(QKᵀ·scaling)V in float32 for query [query heads, q, head_dim] of the last q tokens."""
    high, total, out = None, None, None
    for first, logits in sliced(query, keys):
        v = values[:, first : first + logits.shape[-1]].float()[:, None]
        top = logits.amax(dim=-1) if high is None else torch.maximum(high, logits.amax(dim=-1))
        weights = (logits - top[..., None]).exp()
        decay = torch.zeros_like(top) if high is None else (high - top).exp()
        total = weights.sum(dim=-1) + (0 if total is None else total * decay)
        out = weights @ v + (0 if out is None else out * decay[..., None])
        high = top
    return (out / total[..., None]).flatten(0, 1)


def votes(query: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
    """The attention that every key receives from the queries [query heads, len], and the log-sum-exps of these."""
    lse = torch.stack([logits.logsumexp(dim=-1) for _, logits in sliced(query, keys)]).logsumexp(dim=0)
    sums = [(logits - lse[..., None]).exp().sum(dim=2) for _, logits in sliced(query, keys)]
    return torch.cat(sums, dim=-1).flatten(0, 1), lse.flatten(0, 1)


def sliced(query: Tensor, keys: Tensor):
    """The first key of each slice, and its causal logits, float32 [num_key_value_heads, group, q, keys]."""
    q, n = query.shape[1], keys.shape[1]
    grouped = query.float().unflatten(0, (len(keys), -1))
    last = torch.arange(n - q, n)[:, None]  # key that a query sees
    for first in range(0, n, SLICE):
        part = keys[:, first : first + SLICE].float()
        logits = grouped @ part[:, None].mT * SCALING
        yield first, logits.masked_fill_(torch.arange(first, first + part.shape[1]) > last, float("-inf"))
