"""H2O's own cache (`H2OKVCache_LayerWise`), which evicts after every step, against `decode=update`."""

from collections.abc import Iterator
from functools import partial
from itertools import product
from pathlib import Path

import torch
from torch import Tensor

from kvbench.methods import H2O, ColumnSums
from scripts.compare.parity.agreement import Agreement, recorded_topk
from scripts.compare.parity.checkout import commit, load
from scripts.compare.parity.tensors import DTYPES, Layer, random_layer

STEPS = 12
SIZES = ((16, 16), (64, 8), (100, 28), (8, 56))  # heavy hitters, recent tokens
LENGTHS = (20, 72, 128, 129, 500, 1000)


def run(project: str, root: Path, file: str) -> Iterator[Agreement]:
    module, version = load(root, file), commit(root)
    for name, dtype in DTYPES.items():
        row = Agreement(project, version, "H2OKVCache_LayerWise", "H2O, decode=update", name, "random MHA")
        row.note = f"{STEPS} decoded tokens; a set after the prompt and after each"
        for number, ((heavy, recent), n) in enumerate(product(SIZES, LENGTHS)):
            layer = random_layer("MHA", n + STEPS, dtype, seed=number)
            example = f"n={n}, heavy={heavy}, recent={recent}"
            theirs = released(module, layer, n, heavy, recent)
            exact = partial(released, module, layer.float(), n, heavy, recent)
            references: list[tuple] = []
            for step, ours in enumerate(kept_by_kvbench(layer, n, heavy, recent)):
                kept, scores = theirs[step]

                def reference(step=step, references=references, exact=exact):
                    references.extend(exact() if not references else [])
                    return references[step]

                row.tally(ours, kept, scores, f"{example}, step {step}", reference if name != "float32" else None)
        yield row


def released(module, layer: Layer, n: int, heavy: int, recent: int) -> list[tuple[Tensor, Tensor | None]]:
    """After the prompt and each step: positions kept [heads, len], and scores by position that decided."""
    cache = module.H2OKVCache_LayerWise(heavy, recent)
    keys, positions, past, out = layer.keys, layer.positions, None, []
    for step in range(STEPS + 1):
        start, end = (0, n) if step == 0 else (n + step - 1, n + step)
        new = keys[None, :, start:end], positions[None, :, start:end]
        past = new if past is None else tuple(torch.cat(pair, dim=2) for pair in zip(past, new, strict=True))
        logits = layer.queries[None, :, start:end] @ past[0].mT * keys.shape[2] ** -0.5
        future = torch.ones(end - start, past[0].shape[2], dtype=torch.bool).triu(past[0].shape[2] - end + start + 1)
        weights = logits.masked_fill(future[: end - start], float("-inf")).softmax(-1, torch.float32).to(keys.dtype)
        before = past[1][0, :, :, 0].long()
        with recorded_topk() as seen:
            past = cache(past, weights)
        scores = None
        if seen:
            scores = torch.full((len(keys), end), float("nan"), dtype=seen[0].dtype)
            scores.scatter_(1, before[:, : seen[0].shape[1]], seen[0])
        out.append((past[1][0, :, :, 0].long(), scores))
    return out


def kept_by_kvbench(layer: Layer, n: int, heavy: int, recent: int) -> Iterator[Tensor]:
    """The tokens in kvbench's cache after the prompt and after each decoded token."""
    method = H2O(scoring=ColumnSums(recent=recent), decode="update")
    prompt = Layer(layer.source, layer.queries[:, :n], layer.keys[:, :n])
    state = prompt.state(column_sums=True)
    state.values = state.keys  # attended with; the cache counts positions by itself
    cache = method.compress_layer(state, 0, 1, heavy + recent)
    yield stored(cache)
    for at in range(n, n + STEPS):
        cache.update(layer.keys[None, :, at : at + 1], layer.keys[None, :, at : at + 1])
        cache.attend(layer.queries[None, :, at : at + 1], layer.keys.shape[2] ** -0.5)
        yield stored(cache)


def stored(cache) -> Tensor:
    """Positions that the cache still holds: a slot marked free was dropped."""
    positions = cache.positions.view[..., 0].long()
    if cache.free is not None:
        keep = torch.ones_like(positions, dtype=torch.bool).scatter_(1, cache.free[:, None], False)
        positions = positions[keep].view(len(positions), -1)
    return positions.sort(dim=-1).values
