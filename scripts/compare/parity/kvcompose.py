"""kvpress's KVComposePress against KVCompose under CompositeHeads: the tokens that every head of every layer keeps.

Both sides get the attention of the same second pass: the press each query's, kvbench its own observation of them.
"""

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import torch
from torch import Tensor

from kvbench.methods import CompositeHeads, Eviction, KVCompose
from kvbench.ops.attention import causal_probabilities
from kvbench.prefill import LayerState, PrefillState
from kvbench.prefill.reconstruction import ContextScores, largest_attention
from scripts.compare.parity.agreement import Agreement
from scripts.compare.parity.checkout import commit, load
from scripts.compare.parity.tensors import LAYOUTS, Layer, random_layer, real_layers

SHARES = (0.1, 0.3, 0.5, 0.9)
LENGTHS = (150, 300)


def models() -> Iterator[tuple[str, list[Layer]]]:
    """Layers whose first half is the context, and whose queries of the second half read it again."""
    for seed, (layout, n) in enumerate(product(LAYOUTS, LENGTHS)):
        yield "random", [random_layer(layout, 2 * n, torch.float32, 10 * seed + index) for index in range(5)]
    for n in LENGTHS:
        yield "SmolLM2-135M", [layer for _, layer in real_layers((2 * n,), torch.float32)]


def released(press: object, layers: list[Layer], budget: int) -> list[list[Tensor]]:
    """The tokens that each head of each layer keeps, by the press's own methods after its hook saw the attention."""
    n, heads = layers[0].n // 2, len(layers[0].queries)
    kv_heads = len(layers[0].keys)
    press.num_layers, press.num_att_heads, press.num_kv_heads = len(layers), heads, kv_heads
    press.num_kv_groups, press.device = heads // kv_heads, "cpu"
    press.compression_ratio = 1 - (len(layers) * budget + 0.5) / (len(layers) * n)
    press.register_context_ids(torch.zeros(1, n))
    for index, layer in enumerate(layers):
        press.forward_hook(SimpleNamespace(layer_idx=index), [], {}, [None, attention(layer)])
    press.prepare_important_masks()
    return [[mask.nonzero()[:, 0] for mask in row] for row in press.important_mask_per_kv_head]


def attention(layer: Layer) -> Tensor:
    """That of the second half's queries to all keys: [1, num_attention_heads, n / 2, n]."""
    half, scaling = layer.n // 2, layer.keys.shape[2] ** -0.5
    groups = layer.queries[:, half:].split(layer.group)
    weights = [
        causal_probabilities(group, key.float(), half, scaling)[0]
        for group, key in zip(groups, layer.keys, strict=True)
    ]
    return torch.cat(weights)[None]


def ours(layers: list[Layer], budget: int) -> list[Tensor]:
    scoring = KVCompose()
    (how,) = scoring.needs.reconstructions
    states, n, scaling = [], layers[0].n // 2, layers[0].keys.shape[2] ** -0.5
    for index, layer in enumerate(layers):
        keys = layer.keys[:, :n]
        state = LayerState(keys, keys, scaling, len(layer.queries), index=index, num_layers=len(layers))
        scores = largest_attention(layer.queries[:, n:], layer.keys, scaling, 0, n, group=how.group)
        state.reconstruction = {how: ContextScores(scores, 0)}
        states.append(state)
    method = Eviction(scoring=scoring, heads=CompositeHeads())
    prompt_method = method.for_prompt(PrefillState(states, torch.zeros(1)), budget)
    return [
        prompt_method.select(state, index, len(states), budget).mask(state).flatten(0, 1)
        for index, state in enumerate(states)
    ]


def tied(press: object, kept: list[list[Tensor]], theirs: list[list[Tensor]]) -> bool:
    """Whether the two choices differ by one composite token of equal score: the lowest layer's are copies."""
    counts = [(len(mine[0]), len(other[0])) for mine, other in zip(kept, theirs, strict=True)]
    exchanged = [(index, min(pair)) for index, pair in enumerate(counts) if pair[0] != pair[1]]
    scores = {press.composite_scores_per_layer[index, place].item() for index, place in exchanged}
    nested = all(
        set(mine.tolist()) <= set(other.tolist()) or set(other.tolist()) <= set(mine.tolist())
        for heads in zip(kept, theirs, strict=True)
        for mine, other in zip(*heads, strict=True)
    )
    return nested and len(scores) == 1 and all(abs(mine - other) < 2 for mine, other in counts)


def run(project: str, root: Path, file: str) -> Iterator[Agreement]:
    base = SimpleNamespace(BasePress=object)
    utils = SimpleNamespace(compute_n_kept=lambda n, ratio: int(n * (1 - ratio)))
    press = load(root, file, kvpress_presses_base_press=base, kvpress_utils=utils).KVComposePress
    version, rows = commit(root), {}
    for source, layers in models():
        row = rows.setdefault(source, Agreement(project, version, "KVComposePress", "KVCompose", "float32", source))
        for share in SHARES:
            budget = int(share * layers[0].n / 2)
            made = press()
            kept = [[head.nonzero()[:, 0] for head in masks] for masks in ours(layers, budget)]
            theirs = released(made, layers, budget)
            same_cut = tied(made, kept, theirs)
            for index, (mine, other) in enumerate(zip(kept, theirs, strict=True)):
                if same_cut and len(mine[0]) != len(other[0]):
                    row.cases, row.compared, row.ties = row.cases + 1, row.compared + len(mine), row.ties + len(mine)
                else:
                    row.tally(mine, other, None, f"{source}, n={layers[0].n // 2}, B={budget}, layer {index}")
    yield from rows.values()
