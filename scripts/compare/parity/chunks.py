"""kvpress's ChunkKVPress over two of its scorers against Chunks: the tokens that an eviction keeps."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import torch
from torch import Tensor

from kvbench.methods import CUR, Chunks, Eviction, KNorm
from kvbench.prefill import LayerState
from scripts.compare.parity.agreement import Agreement
from scripts.compare.parity.checkout import commit, load
from scripts.compare.parity.cur import prompts, random_layers
from scripts.compare.parity.stand_ins import digits, undigits
from scripts.compare.parity.tensors import DTYPES, Layer

REMOVED = (0.1, 0.5, 0.7, 0.9)  # kvpress's compression_ratio
LENGTHS = (10, 20)
# of presses: their file, their options and kvbench's scoring
PRESSES = {
    "KnormPress": ("knorm_press.py", {}, KNorm()),
    "CURPress": ("cur_press.py", {"num_sinks": 0}, CUR(sinks=0)),
}


@dataclass
class ScorerPress:
    compression_ratio: float = 0.0

    def compress(self, module, hidden, keys, values, attentions, kwargs) -> tuple[Tensor, Tensor]:
        """Of prompts shorter than a chunk, which are not compared."""
        raise NotImplementedError


def run(project: str, root: Path, file: str) -> Iterator[Agreement]:
    parts = {
        "kvpress_presses_base_press": SimpleNamespace(BasePress=object),
        "kvpress_presses_scorer_press": SimpleNamespace(ScorerPress=ScorerPress),
    }
    chunk_press, version = load(root, file, **parts).ChunkKVPress, commit(root)
    sources = (("random", random_layers), ("SmolLM2-135M", prompts))
    for (name, (where, options, scoring)), dtype, (source, layers) in product(PRESSES.items(), DTYPES, sources):
        press = getattr(load(root, str(Path(file).with_name(where)), **parts), name)
        kind = f"Chunks, {type(scoring).__name__}"
        row = Agreement(project, version, f"ChunkKVPress, {name}", kind, dtype, source)
        for layer, length, removed in product(layers(DTYPES[dtype]), LENGTHS, REMOVED):
            if layer.n <= length:
                continue
            made = chunk_press(press=press(compression_ratio=removed, **options), chunk_length=length)

            def released(layer: Layer, made=made, length=length) -> tuple[Tensor, Tensor]:
                """The kept tokens of the first head, which all share, and the scores of their chunks."""
                positions = digits(torch.arange(layer.n), layer.keys.shape[2], torch.float32)
                scores = made.press.score(None, None, layer.keys[None], layer.values[None], None, {})
                scorer = SimpleNamespace(compression_ratio=made.press.compression_ratio, score=lambda *_: scores)
                chosen = type(made).compress(
                    SimpleNamespace(press=scorer, chunk_length=made.chunk_length),
                    SimpleNamespace(head_dim=layer.keys.shape[2]),
                    None,
                    layer.keys[None].float(),
                    positions.expand_as(layer.keys)[None],
                    None,
                    {},
                )[1]
                means = [part.sum(dim=0).mean() for part in scores[0].split(length, dim=1)]
                return undigits(chosen[0, :1]), torch.stack(means).repeat_interleave(length)[None, : layer.n]

            def exactly(layer: Layer = layer, released=released) -> tuple[Tensor, Tensor]:
                return released(layer.float())

            theirs, scores = released(layer)
            state = LayerState(layer.keys, layer.values, layer.keys.shape[2] ** -0.5, len(layer.queries))
            method = Eviction(scoring=Chunks(scoring, length), granularity="layer")
            kept = method.select(state, 0, 1, theirs.shape[1]).indices
            row.tally(kept, theirs, scores, f"{layer.source}, n={layer.n}, removed {removed}, {length}", exactly)
        yield row
