"""kvpress's DMSPress over two of its scorers against ScoreThreshold: the tokens of a prompt that each KV head keeps."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import torch
from torch import Tensor

from kvbench.methods import CUR, KNorm, ScoreThreshold
from kvbench.prefill import LayerState
from scripts.compare.parity.agreement import Agreement
from scripts.compare.parity.checkout import commit, load
from scripts.compare.parity.cur import prompts, random_layers
from scripts.compare.parity.tensors import DTYPES, Layer

WINDOWS, QUANTILES = (16, 128), (0.1, 0.5, 0.9)
# of presses: their file, their options and kvbench's scoring
PRESSES = {
    "KnormPress": ("knorm_press.py", {}, KNorm()),
    "CURPress": ("cur_press.py", {"num_sinks": 0}, CUR(sinks=0)),
}


@dataclass
class ScorerPress:
    compression_ratio: float = 0.0


def run(project: str, root: Path, file: str) -> Iterator[Agreement]:
    parts = {
        "kvpress_presses_base_press": SimpleNamespace(BasePress=object, is_prefilling=lambda *_: True),
        "kvpress_presses_scorer_press": SimpleNamespace(ScorerPress=ScorerPress),
        "kvpress_utils": SimpleNamespace(extract_keys_and_values=lambda cache, _: cache),
    }
    module, version = load(root, file, **parts), commit(root)
    sources = (("random", random_layers), ("SmolLM2-135M", prompts))
    for (name, (where, options, scoring)), dtype, (source, layers) in product(PRESSES.items(), DTYPES, sources):
        scorer = getattr(load(root, str(Path(file).with_name(where)), **parts), name)(**options)
        kind = f"ScoreThreshold, {type(scoring).__name__}"
        row = Agreement(project, version, f"DMSPress, {name}", kind, dtype, source)
        for layer, window, part in product(layers(DTYPES[dtype]), WINDOWS, QUANTILES):
            if layer.n > window:
                compare(row, module.DMSPress, scorer, scoring, layer, window, part)
        yield row


def compare(
    row: Agreement, press: type, scorer: object, scoring: KNorm | CUR, layer: Layer, window: int, part: float
) -> None:
    def scores(layer: Layer) -> Tensor:
        return scorer.score(None, None, layer.keys[None], layer.values[None], None, {})[0]

    ranked = scores(layer.float()).flatten().sort().values
    place = int(part * len(ranked))
    threshold = float(ranked[place : place + 2].mean())  # between two scores

    def released(layer: Layer) -> list[Tensor]:
        made = press(press=scorer, threshold=threshold, sliding_window_size=window)
        attention = SimpleNamespace(layer_idx=0, masked_key_indices=None)
        arguments = {
            "hidden_states": layer.keys[:1],
            "past_key_values": (layer.keys[None], layer.values[None]),
            "cache_position": torch.arange(layer.n),
        }
        made.forward_hook(attention, [], arguments, [])
        kept = torch.ones(layer.keys.shape[:2], dtype=torch.bool)
        if attention.masked_key_indices is not None:
            kept[tuple(attention.masked_key_indices[1:])] = False
        return [of_head.nonzero()[:, 0] for of_head in kept]

    state = LayerState(layer.keys, layer.values, layer.keys.shape[2] ** -0.5, len(layer.queries))
    ours = ScoreThreshold(threshold, scoring, window).chosen(state)
    kept = [of_head.nonzero()[:, 0] for of_head in ours]
    example = f"{layer.source}, n={layer.n}, window {window}, {part}"
    wide = layer.float()
    row.tally(kept, released(layer), scores(layer), example, lambda: (released(wide), scores(wide)))
