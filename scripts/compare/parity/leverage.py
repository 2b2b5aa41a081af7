"""kvpress's LeverageScorePress, with kvbench's random projection, against LeverageScore: the tokens that are kept."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import torch
from torch import Tensor

from kvbench.methods import Eviction, LeverageScore
from kvbench.ops.rope import Rope
from kvbench.prefill import LayerState
from scripts.compare.parity.agreement import Agreement
from scripts.compare.parity.checkout import commit, load
from scripts.compare.parity.cur import SHARES, prompts, random_layers
from scripts.compare.parity.tensors import DTYPES, Layer

SKETCHES = (8, 48)


class Unrotated(Rope):
    """Keys that are taken as they are: before RoPE on both sides."""

    def rotate(self, x: Tensor, positions: Tensor) -> Tensor:
        return x


UNROTATED = Unrotated(torch.nn.Identity(), None)


@dataclass
class ScorerPress:
    compression_ratio: float = 0.0


@contextmanager
def drawn(matrix: Tensor) -> Iterator[None]:
    """`torch.randn` returns `matrix` times the root of its columns, which the press divides by."""
    original = torch.randn
    torch.randn = lambda *size, device=None, dtype=None: (matrix * matrix.shape[-1] ** 0.5).view(size).to(dtype)
    try:
        yield
    finally:
        torch.randn = original


def run(project: str, root: Path, file: str) -> Iterator[Agreement]:
    keys_of = SimpleNamespace(get_prerope_key_states=lambda module, hidden: hidden)
    scorer = SimpleNamespace(ScorerPress=ScorerPress)
    module = load(root, file, kvpress_presses_scorer_press=scorer, kvpress_utils=keys_of)
    version = commit(root)
    for dtype, (source, layers) in product(DTYPES, (("random", random_layers), ("SmolLM2-135M", prompts))):
        row = Agreement(project, version, "LeverageScorePress", "LeverageScore", dtype, source)
        for layer, sketch in product(layers(DTYPES[dtype]), SKETCHES):
            scoring = LeverageScore(sketch)
            matrix = scoring.matrix(0, len(layer.keys), layer.keys.shape[2])

            def scores(layer: Layer, matrix=matrix, sketch=sketch) -> Tensor:
                with drawn(matrix):
                    return module.LeverageScorePress.compute_leverage_scores(layer.keys[None], sketch)[0]

            theirs, heads = scores(layer), len(layer.queries)
            state = LayerState(layer.keys, layer.values, layer.keys.shape[2] ** -0.5, heads, UNROTATED)
            for budget in sorted({max(1, int(share * layer.n)) for share in SHARES}):

                def exactly(layer: Layer = layer, budget=budget, scores=scores) -> tuple[Tensor, Tensor]:
                    exact = scores(layer.float())
                    return exact.topk(budget, dim=-1).indices, exact

                kept = Eviction(scoring=scoring).select(state, 0, 1, budget).indices
                example = f"{layer.source}, n={layer.n}, B={budget}, sketch {sketch}"
                row.tally(kept, theirs.topk(budget, dim=-1).indices, theirs, example, exactly)
        yield row
