"""kvpress's block-wise press, which simulates KeyDiff's prompt processing, against the layer of an evicting prefill."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import torch
from torch import Tensor

from kvbench.methods import ChunkedEviction, Eviction, KeyDiff, KNorm
from kvbench.prefill import Needs
from kvbench.prefill.evicting import EvictingLayer
from scripts.compare.parity import tensors
from scripts.compare.parity.agreement import Agreement
from scripts.compare.parity.checkout import commit, load
from scripts.compare.parity.stand_ins import digits, undigits
from scripts.compare.parity.tensors import LAYOUTS, Layer, random_layer, real_layers

PRESSES = {"KeyDiffPress": ("keydiff_press.py", KeyDiff()), "KnormPress": ("knorm_press.py", KNorm())}
# The press begins with a block of the budget: budgets of whole blocks are cut at the same places.
SIZES = ((64, 16), (128, 128), (256, 64))  # budget, block
LENGTHS = (300, 777, 1500)


@dataclass
class ScorerPress:
    compression_ratio: float = 0.0


def run(project: str, root: Path, file: str) -> Iterator[Agreement]:
    parts = {
        "kvpress_presses_base_press": SimpleNamespace(BasePress=object),
        "kvpress_presses_scorer_press": SimpleNamespace(ScorerPress=ScorerPress),
    }
    block_press, version = load(root, file, **parts).BlockPress, commit(root)
    for (name, (where, scoring)), dtype in product(PRESSES.items(), tensors.DTYPES):
        press = getattr(load(root, str(Path(file).with_name(where)), **parts), name)
        for source, layers in (("random", random_layers), ("SmolLM2-135M", prompts)):
            kind = type(scoring).__name__
            row = Agreement(project, version, f"BlockPress, {name}", f"ChunkedEviction, {kind}", dtype, source)
            for layer, (budget, block) in product(layers(tensors.DTYPES[dtype]), SIZES):

                def released(layer: Layer, budget=budget, block=block, press=press) -> Tensor:
                    made = block_press(press=press(compression_ratio=1 - (budget + 0.5) / layer.n), block_size=block)
                    positions = digits(torch.arange(layer.n), layer.keys.shape[2], layer.keys.dtype)
                    values = positions.expand_as(layer.keys)[None]
                    hidden = torch.zeros(1, layer.n, len(layer.keys))
                    kept = made.compress(None, hidden, layer.keys[None], values, None, {})[1]
                    return undigits(kept[0]).sort(dim=1).values

                def scores(layer: Layer, press=press, kind=kind) -> Tensor | list[None]:
                    """Of all tokens, where those of a block depend on no other token."""
                    if kind != "KNorm":
                        return [None] * len(layer.keys)
                    return press().score(None, None, layer.keys[None], None, None, {})[0]

                def exactly(layer: Layer = layer, released=released, scores=scores) -> tuple:
                    return released(layer.float()), scores(layer.float())

                method = ChunkedEviction(Eviction(scoring=scoring), block)
                example = f"{layer.source}, n={layer.n}, B={budget}, C={block}"
                row.tally(chunked(method, layer, budget), released(layer), scores(layer), example, exactly)
            yield row


def random_layers(dtype: torch.dtype) -> Iterator[Layer]:
    for layout, n in product(LAYOUTS, LENGTHS):
        yield random_layer(layout, n, dtype, seed=n)


def prompts(dtype: torch.dtype) -> Iterator[Layer]:
    yield from (layer for _, layer in real_layers(LENGTHS[:2], dtype))


def chunked(method: ChunkedEviction, layer: Layer, budget: int) -> Tensor:
    """The positions [heads, budget] that are left of a layer's tokens after the last chunk."""
    keep = method.plan(layer.n, 1, budget).keep
    left = EvictingLayer(keep, Needs())
    for start in range(0, layer.n, method.chunk):
        new = slice(start, start + method.chunk)
        left.update(layer.keys[None, :, new], layer.keys[None, :, new])
        left.attend(layer.queries[None, :, new], layer.keys.shape[2] ** -0.5)
    return left.tokens.positions
