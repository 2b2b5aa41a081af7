"""RocketKV's released cache and attention (gpt-fast) against RocketKV: the tokens of both stages, and the outputs."""

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from types import ModuleType

import torch
from torch import Tensor

from kvbench.methods import RocketKV
from kvbench.methods.rocketkv.layer_cache import HybridLayer
from scripts.compare.parity.agreement import Agreement
from scripts.compare.parity.checkout import commit, load
from scripts.compare.parity.tensors import DTYPES, Layer, sources

LENGTHS, REAL, SHARES, WINDOW, KERNEL = (300, 900), (400, 900), (0.08, 0.15, 0.3, 0.6), 32, 63
ALLOWED = {"float32": 2e-5, "bfloat16": 3e-2}  # of an output, relative to the largest of its head


def run(project: str, root: Path, file: str) -> Iterator[Agreement]:
    module, version = load(root, file), commit(root)
    module._scaled_softmax = lambda x, divscale, dim: torch.softmax(x / divscale, dim=dim)  # without torch.compile
    for name, dtype in DTYPES.items():
        for label, layers in sources(dtype, LENGTHS, REAL, 64):
            coarse = Agreement(project, version, "RocketKVCache.update", "RocketKV", name, label)
            fine = Agreement(project, version, "rocket_attn", "HybridLayer", name, label, "read sets")
            outputs = Agreement(project, version, "rocket_attn", "HybridLayer", name, label, "outputs")
            outputs.note = "where both read the same tokens"
            for number, (layer, share) in enumerate(product(layers, SHARES)):
                compare(module, layer, int(share * (layer.n - 1)), coarse, fine, outputs, f"case {number}, {share}")
            yield from (coarse, fine, outputs)


def compare(
    module: ModuleType, layer: Layer, budget: int, coarse: Agreement, fine: Agreement, outputs: Agreement, example: str
) -> None:
    """The layer's last query and key are those of the decoded token; values are the keys of the token before."""
    layer.values = layer.keys.roll(1, dims=1)
    state = Layer(layer.source, layer.queries[:, :-1], layer.keys[:, :-1]).state()
    state.values = layer.values[:, :-1]
    cache = RocketKV(WINDOW, KERNEL).compress_layer(state, 0, 1, budget)
    assert isinstance(cache, HybridLayer)
    kept, scores = released_eviction(module, layer, budget)

    def exact() -> tuple[Tensor, Tensor]:
        wide = layer.float()
        return released_eviction(module, wide, budget)

    coarse.tally(positions(cache, state.keys), kept, scores, example, exact)

    cache.update(layer.keys[None, :, -1:], layer.values[None, :, -1:])
    query, scaling = layer.queries[None, :, -1:], layer.keys.shape[2] ** -0.5
    read, scores, output = released_attention(module, cache, query)

    def exact_reads() -> tuple[Tensor, Tensor]:
        return released_attention(module, wide_copy(cache), query.float())[:2]

    mine = cache.choose(query, scaling)
    fine.tally(mine, read, scores, example, exact_reads)
    outputs.cases += 1
    heads = len(layer.keys)
    pairs = (x[0, :, 0].float().unflatten(0, (heads, -1)) for x in (cache.attend(query, scaling), output))
    for head, (answer, reference) in enumerate(zip(*pairs, strict=True)):
        if set(mine[head].tolist()) == set(read[head].tolist()):
            gap = (answer - reference).abs().amax(dim=1) / reference.abs().amax(dim=1)
            outputs.compared += len(gap)
            verdict = "rounding" if fine.dtype == "float32" else "dtype_rounding"
            setattr(outputs, verdict, getattr(outputs, verdict) + int((gap <= ALLOWED[fine.dtype]).sum()))
            outputs.different += int((gap > ALLOWED[fine.dtype]).sum())
            outputs.largest_gap = max(outputs.largest_gap, float(gap.max()))


def positions(cache: HybridLayer, keys: Tensor) -> Tensor:
    """Where in the prompt the stored keys are, [heads, len]."""
    return (cache.k.view[0][:, :, None] == keys[:, None]).all(dim=3).float().argmax(dim=2)


def released_eviction(module: ModuleType, layer: Layer, budget: int) -> tuple[Tensor, Tensor]:
    """The prompt tokens that the released cache keeps, [heads, capacity], and the pooled scores it chose them by."""
    heads, n, head_dim = len(layer.keys), layer.n - 1, layer.keys.shape[2]
    capacity, _, page, _, _ = module.get_params_for_token_budget(budget, n, 0, head_dim)
    dtype = layer.keys.dtype
    args = module.RocketArgs(window_size=(WINDOW,), kernel_size=(KERNEL,))
    cache = module.RocketKVCache(1, n + 1, capacity, capacity, page, heads, head_dim, args, dtype)
    numbers = torch.arange(n + 1).float()[None, None, :, None].expand(1, heads, -1, head_dim)
    cache.orig_k_cache, cache.orig_v_cache = layer.keys[None].clone(), numbers.clone()
    cache.v_cache = cache.v_cache.float()
    # the last position of what it is given is left out of the prompt
    at = torch.arange(n - WINDOW, n + 1)
    seen: list[Tensor] = []
    pool = torch.nn.functional.max_pool1d

    def recorded(scores: Tensor, **options: int) -> Tensor:
        seen.append(pool(scores, **options))
        return seen[-1]

    torch.nn.functional.max_pool1d = recorded
    try:
        cache.update(at, layer.queries[None, :, n - WINDOW : n], layer.keys[None, :, at], numbers[:, :, at], 1)
    finally:
        torch.nn.functional.max_pool1d = pool
    return cache.v_cache[0, :, :, 0].long(), seen[0][0]


def released_attention(module: ModuleType, cache: HybridLayer, query: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The tokens that the released attention reads of the same store, its scores by token, and its output."""
    keys, values = cache.k.view, cache.v.view
    stored = keys if cache.bounds is None else cache.bounds.view[None]
    mask = torch.ones(1, 1, 1, keys.shape[2], dtype=torch.bool)
    seen, topk = [], torch.topk

    def recorded(scores: Tensor, k: int, **options: object) -> object:
        top = topk(scores, k, **options)
        seen.append((scores, top.indices))
        return top

    torch.topk = recorded
    try:
        output = module.rocket_attn(
            query, stored, keys, values, mask, cache.page, cache.channels, cache.tokens, module.RocketArgs()
        )
    finally:
        torch.topk = topk
    scores, read = seen[1]
    return read[0, :, 0, 0], scores[0, :, 0, 0], output


def wide_copy(cache: HybridLayer) -> HybridLayer:
    """The same store in float32."""
    keys, values = cache.k.view[0].float(), cache.v.view[0].float()
    return HybridLayer(keys, values, cache.page, cache.tokens, cache.channels, cache.seen, cache.kept)
