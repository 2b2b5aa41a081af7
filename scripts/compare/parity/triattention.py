"""TriAttention's released scores against TriAttention: the tokens that KV heads keep, with the same statistics."""

from collections.abc import Iterator
from itertools import product
from pathlib import Path

import torch
from torch import Tensor
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

from kvbench.methods import Eviction, TriAttention
from kvbench.ops.rope import Rope
from kvbench.prefill import LayerState
from scripts.compare.parity.agreement import Agreement
from scripts.compare.parity.checkout import commit, load
from scripts.compare.parity.tensors import HEAD_DIM, LAYOUTS, Layer, random_layer

LENGTHS, SHARES, OBSERVED, FARTHEST = (150, 400), (0.1, 0.3, 0.5, 0.9), (16, 128), (1, 300, 65536)
CENTRE = 1.0  # of queries before RoPE, added to all of a layer


def run(project: str, root: Path, file: str) -> Iterator[Agreement]:
    module, version = load(root, file), commit(root)
    embedding = LlamaRotaryEmbedding(LlamaConfig(hidden_size=HEAD_DIM, num_attention_heads=1))
    rope = Rope(embedding, apply_rotary_pos_emb)
    row = Agreement(project, version, "score_keys_for_round", "TriAttention", "float32", "random")
    row.note = "statistics of the prompt's last queries on both sides"
    for (seed, layout), n in product(enumerate(LAYOUTS), LENGTHS):
        layer = random_layer(layout, n, torch.float32, seed)
        layer.queries = rope.rotate(layer.queries + CENTRE, torch.arange(n))
        state = layer.state()
        state.rope = rope
        for observed, farthest in product(OBSERVED, FARTHEST):
            scores = released(module, layer, rope, observed, farthest)
            for share in SHARES:
                compare(row, state, scores, TriAttention(observed, farthest), int(share * n))
    yield row


def released(module: object, layer: Layer, rope: Rope, observed: int, farthest: int) -> Tensor:
    """The largest standardised score of a group's heads, [num_key_value_heads, n]."""
    places, frequencies = torch.arange(layer.n), rope.embedding.inv_freq
    keys = rope.rotate(layer.keys, -places)
    queries = rope.rotate(layer.queries[:, -observed:], -places[-observed:])
    rows = []
    for head, vectors in enumerate(queries):
        pairs = module.to_complex_pairs(vectors)
        amp, phi, extra = module.compute_frequency_statistics_from_means(
            pairs.mean(dim=0), pairs.abs().mean(dim=0), keys[head // layer.group]
        )
        offsets = module.build_geometric_offsets(farthest, "cpu")
        ones = torch.ones_like(frequencies)
        rows.append(module.score_keys_for_round(places, layer.n, amp, phi, frequencies, extra, offsets, "mean", ones))
    scores = torch.stack(rows)
    standard = (scores - scores.mean(dim=1, keepdim=True)) / scores.std(dim=1, keepdim=True, correction=0)
    return standard.unflatten(0, (len(layer.keys), -1)).amax(dim=1)


def compare(row: Agreement, state: LayerState, scores: Tensor, scoring: TriAttention, budget: int) -> None:
    method = Eviction(scoring=scoring, group_reduce="max")
    kept = method.select(state, 0, 1, budget).indices
    theirs = scores.topk(budget, dim=1).indices
    row.tally(kept, theirs, scores, f"n={state.n}, budget={budget}, {scoring}")
