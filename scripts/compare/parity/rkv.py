"""R-KV's `R1KV.update_kv`, called whenever 16 more tokens were decoded, against compression while decoding."""

from collections.abc import Iterator
from functools import partial
from itertools import product
from pathlib import Path

import torch
from torch import Tensor

from kvbench.cache.base import Growing
from kvbench.methods import RKV, DecodeCompression, Eviction
from scripts.compare.parity.agreement import Agreement, recorded_topk
from scripts.compare.parity.checkout import commit, load
from scripts.compare.parity.stand_ins import digits, undigits
from scripts.compare.parity.tensors import DTYPES, LAYOUTS, Layer, random_layer, real_layers

EVERY, REDUCTIONS, WINDOW = 16, 4, 8
BUDGETS = (32, 64, 128)
IMPORTANCES = (0.1, 0.07, 0.5)
LENGTHS = (20, 100, 300)
LIKE = 0.6  # random keys are this much of another key: pairs with cosines on both sides of 0.5


def run(project: str, root: Path, file: str) -> Iterator[Agreement]:
    utils = load(root, "rkv/utils.py")
    module, version = load(root, file, **{"": utils}), commit(root)
    for name, dtype in DTYPES.items():
        for source, layers in (("random", random_layers(dtype)), ("SmolLM2-135M", real(dtype))):
            row = Agreement(project, version, "R1KV.update_kv", "R-KV, slots=score", name, source)
            row.note = f"{REDUCTIONS} reductions of each cache, {EVERY} tokens apart"
            for (example, layer, n), budget, importance in product(layers, BUDGETS, IMPORTANCES):
                compare(row, module, layer, n, budget, importance, f"{example}, budget={budget}, lambda={importance}")
            yield row


def random_layers(dtype: torch.dtype) -> list[tuple[str, Layer, int]]:
    made = []
    for seed, (layout, n) in enumerate(product(LAYOUTS, LENGTHS)):
        layer = random_layer(layout, n + EVERY * REDUCTIONS, dtype, seed)
        layer.keys = (layer.keys + LIKE * layer.keys.roll(seed + 3, dims=1)).to(dtype)
        made.append((f"{layout}, n={n}", layer, n))
    return made


def real(dtype: torch.dtype) -> list[tuple[str, Layer, int]]:
    lengths = tuple(n + EVERY * REDUCTIONS for n in LENGTHS[1:])
    layers = real_layers(lengths, dtype, every=6)
    return [(f"layer {index}, n={layer.n}", layer, layer.n - EVERY * REDUCTIONS) for index, layer in layers]


def compare(row: Agreement, module, layer: Layer, n: int, budget: int, importance: float, example: str) -> None:
    """Tally what both keep at each reduction. The next one begins for both with what the released code stored."""
    released = module.R1KV(budget=budget, window_size=WINDOW, mix_lambda=importance)
    when = DecodeCompression(every=EVERY, prompt="whole", slots="score")
    method = Eviction(scoring=RKV(window=WINDOW, importance=importance), decode_compression=when)
    values = digits(torch.arange(layer.n), layer.keys.shape[2], layer.keys.dtype).expand_as(layer.keys)
    state = Layer(layer.source, layer.queries[:, :n], layer.keys[:, :n]).state()
    state.values = values[:, :n]
    cache = method.compress_layer(state, 0, 1, budget)
    for position in range(n, layer.n):
        new = slice(position, position + 1)
        cache.update(layer.keys[None, :, new], values[None, :, new])
        if not when.due(position + 1, n):
            cache.attend(layer.queries[None, :, new], state.scaling)
            continue
        before = [store.view.clone() for store in (cache.k, cache.v)]
        cache.attend(layer.queries[None, :, new], state.scaling)
        recent = layer.queries[None, :, position + 1 - WINDOW : position + 1]
        keys, kept, scores = reduced(released, before[0], recent, before[1])
        exact = partial(exactly, released, before[0], recent, before[1])
        row.tally(undigits(cache.v.view[0]), undigits(kept[0]), scores, f"{example}, after {position + 1}", exact)
        cache.k, cache.v = Growing(keys), Growing(kept)


def reduced(released, keys: Tensor, queries: Tensor, values: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
    """The released code's keys and values, and the scores by position [heads, seen] that it selected by."""
    with recorded_topk() as seen:
        kept_keys, kept_values = released.update_kv(keys, queries, values)
    if not seen:
        return kept_keys, kept_values, None
    before = undigits(values[0])
    scores = torch.full((len(before), int(before.max()) + 1), float("nan"), dtype=seen[0].dtype)
    scores.scatter_(1, before[:, : seen[0].shape[-1]], seen[0].view(len(before), -1))
    return kept_keys, kept_values, scores


def exactly(released, keys: Tensor, queries: Tensor, values: Tensor) -> tuple[Tensor, Tensor | None]:
    _, kept, scores = reduced(released, keys.float(), queries.float(), values.float())
    return undigits(kept[0]), scores
