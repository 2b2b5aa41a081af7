"""kvpress's CURPress against CUR: the tokens that an eviction keeps."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import torch
from torch import Tensor

from kvbench.methods import CUR, Eviction
from kvbench.prefill import LayerState
from scripts.compare.parity.agreement import Agreement
from scripts.compare.parity.checkout import commit, load
from scripts.compare.parity.tensors import DTYPES, LAYOUTS, Layer, random_layer, real_layers

LENGTHS = (15, 300, 777)
SHARES = (0.1, 0.3, 0.5, 0.9)
# Options of both sides; None is no blocks, for which the press has a switch of its own.
OPTIONS = [*product(("product", "mean", "key", "value"), (16, None), (4,)), ("product", 10, 0)]
TYPES = {"product": "kv_product", "mean": "kv_avg", "key": "key", "value": "value"}


@dataclass
class ScorerPress:
    compression_ratio: float = 0.0


def run(project: str, root: Path, file: str) -> Iterator[Agreement]:
    parts = {"kvpress_presses_scorer_press": SimpleNamespace(ScorerPress=ScorerPress)}
    press, version = load(root, file, **parts).CURPress, commit(root)
    for dtype, (source, layers) in product(DTYPES, (("random", random_layers), ("SmolLM2-135M", prompts))):
        row = Agreement(project, version, "CURPress", "CUR", dtype, source)
        for layer, options in product(layers(DTYPES[dtype]), OPTIONS):
            leverage, local, sinks = options
            made = press(
                num_sinks=sinks,
                leverage_type=TYPES[leverage],
                use_local_approximation=local is not None,
                local_window_size=local or 16,
            )
            method = Eviction(scoring=CUR(leverage, local, sinks))
            for budget in sorted({max(sinks + 1, int(share * layer.n)) for share in SHARES}):

                def released(layer: Layer, made=made, budget=budget) -> tuple[Tensor, Tensor]:
                    scores = made.score(None, None, layer.keys[None], layer.values[None], None, {})[0]
                    return scores.topk(budget, dim=-1).indices, scores

                def exactly(layer: Layer = layer, released=released) -> tuple[Tensor, Tensor]:
                    return released(layer.float())

                state = LayerState(layer.keys, layer.values, layer.keys.shape[2] ** -0.5, len(layer.queries))
                kept = method.select(state, 0, 1, budget).indices
                row.tally(kept, *released(layer), f"{layer.source}, n={layer.n}, B={budget}, {options}", exactly)
        yield row


def random_layers(dtype: torch.dtype) -> Iterator[Layer]:
    for seed, (layout, n) in enumerate(product(LAYOUTS, LENGTHS)):
        layer = random_layer(layout, n, dtype, seed)
        values = torch.randn(layer.keys.shape, generator=torch.Generator().manual_seed(100 + seed))
        yield Layer(layer.source, layer.queries, layer.keys, values.to(dtype))


def prompts(dtype: torch.dtype) -> Iterator[Layer]:
    yield from (layer for _, layer in real_layers(LENGTHS[1:], dtype))
