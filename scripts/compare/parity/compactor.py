"""kvpress's NonCausalAttnPress and CompactorPress against NonCausalAttention and Compactor: the tokens that are kept.

Both sides get the same queries and the same keys, before RoPE and after it alike, and the press kvbench's projection.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import torch
from torch import Tensor

from kvbench.methods import Compactor, Eviction, NonCausalAttention
from kvbench.prefill import LayerState
from kvbench.prefill.block_sums import Blocks, BlockSums
from scripts.compare.parity.agreement import Agreement
from scripts.compare.parity.checkout import commit, load
from scripts.compare.parity.cur import SHARES, prompts, random_layers
from scripts.compare.parity.leverage import UNROTATED, drawn
from scripts.compare.parity.tensors import DTYPES, Layer

BLOCKS = (64, 256)
BLENDING = (None, 0.35)


@dataclass
class ScorerPress:
    compression_ratio: float = 0.0


def presses(root: Path, file: str) -> tuple[type, type]:
    """NonCausalAttnPress and CompactorPress; as hidden states they take queries and keys beside each other."""

    def queries(module, hidden: Tensor) -> Tensor:
        return hidden.unflatten(-1, (-1, module.head_dim))[:, :, : module.heads].transpose(1, 2)

    def keys(module, hidden: Tensor) -> Tensor:
        return hidden.unflatten(-1, (-1, module.head_dim))[:, :, module.heads :].transpose(1, 2)

    scorer = SimpleNamespace(ScorerPress=ScorerPress)
    utils = SimpleNamespace(get_prerope_query_states=queries, get_prerope_key_states=keys)
    parts = {"kvpress_presses_scorer_press": scorer, "kvpress_utils": utils}
    folder = Path(file).parent
    leverage = load(root, str(folder / "leverage_press.py"), **parts)
    attention = load(root, str(folder / "non_causal_attention_press.py"), **parts)
    modules = {"kvpress_presses_leverage_press": leverage, "kvpress_presses_non_causal_attention_press": attention}
    return attention.NonCausalAttnPress, load(root, file, **parts, **modules).CompactorPress


def scores_of(press: object, layer: Layer) -> Tensor:
    """The press's scores [num_key_value_heads, n]."""
    heads, n, head_dim = layer.queries.shape
    hidden = torch.cat([layer.queries, layer.keys]).transpose(0, 1).flatten(1)[None]
    ones = torch.ones(1, n, head_dim, dtype=layer.keys.dtype)
    embeddings = {"position_embeddings": (ones, torch.zeros_like(ones))}
    module = SimpleNamespace(heads=heads, head_dim=head_dim)
    return press.score(module, hidden, layer.keys[None], layer.values[None], None, embeddings)[0]


def state_of(layer: Layer, blocks: Blocks) -> LayerState:
    sums = BlockSums(blocks, layer.n)
    sums.add(layer.queries, layer.keys, 0)
    scaling = layer.keys.shape[2] ** -0.5
    state = LayerState(layer.keys, layer.values, scaling, len(layer.queries), UNROTATED)
    state.block_sums = {blocks: sums.total()}
    return state


def run(project: str, root: Path, file: str) -> Iterator[Agreement]:
    non_causal, compactor = presses(root, file)
    version = commit(root)
    for dtype, (source, layers) in product(DTYPES, (("random", random_layers), ("SmolLM2-135M", prompts))):
        attention = Agreement(project, version, "NonCausalAttnPress", "NonCausalAttention", dtype, source)
        blended = Agreement(project, version, "CompactorPress", "Compactor", dtype, source)
        for layer, block in product(layers(DTYPES[dtype]), BLOCKS):
            scoring = NonCausalAttention(block, filled=True)
            compare(attention, layer, scoring, non_causal(chunk_size=block), scoring.blocks(0, 0), least=1)
            for weight in BLENDING:
                both = Compactor(weight, block, filled=True)
                press = compactor(chunk_size=block, blending=weight)
                compare(blended, layer, both, press, both.attention.blocks(both.sinks, both.window), least=13)
        yield from (attention, blended)


def compare(
    row: Agreement, layer: Layer, scoring: NonCausalAttention | Compactor, press: object, blocks: Blocks, least: int
) -> None:
    state = state_of(layer, blocks)
    for budget in sorted({max(least, int(share * layer.n)) for share in SHARES}):

        def scores(layer: Layer, budget: int = budget) -> Tensor:
            press.compression_ratio = 1 - budget / layer.n
            if not isinstance(scoring, Compactor):
                return scores_of(press, layer)
            matrix = scoring.leverage.matrix(0, len(layer.keys), layer.keys.shape[2])
            with drawn(matrix):
                scores = scores_of(press, layer)
            scores[:, : scoring.sinks] = scores[:, -scoring.window :] = float("inf")  # as large as the largest, there
            return scores

        def exactly(layer: Layer = layer, budget: int = budget, scores=scores) -> tuple[Tensor, Tensor]:
            exact = scores(layer.float())
            return exact.topk(budget, dim=-1).indices, exact

        theirs = scores(layer)
        kept = Eviction(scoring=scoring).select(state, 0, 1, budget).indices
        example = f"{layer.source}, n={layer.n}, B={budget}, {blocks}"
        row.tally(kept, theirs.topk(budget, dim=-1).indices, theirs, example, exactly)
