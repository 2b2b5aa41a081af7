"""OmniKV's released choice of tokens and of layers against OmniKV."""

import math
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from types import ModuleType, SimpleNamespace

import torch
from torch import Tensor
from transformers.models.llama.modeling_llama import repeat_kv

from kvbench.methods import OmniKV
from kvbench.methods.omnikv import FilterLayer, ReadingLayer
from kvbench.prefill import PrefillState
from scripts.compare.parity.agreement import Agreement, recorded_topk
from scripts.compare.parity.checkout import commit, load
from scripts.compare.parity.tensors import DTYPES, Layer, random_layer, sources

LENGTHS, REAL, SHARES = (150, 500), (300, 900), (0.067, 0.2, 0.5, 0.9)
SELECTORS = {"attention": "softmax_before_last", "logits": "last"}
FILTERS, DEPTHS, WAITS = ([2, 8, 18], [0], [1, 2, 5], [4, 30]), (32, 40, 48, 61), (0, 1, 2, 3)


def run(project: str, root: Path, file: str) -> Iterator[Agreement]:
    module, version = load(root, file), commit(root)
    module.math, module.repeat_kv = math, repeat_kv
    module.apply_rotary_pos_emb = lambda queries, keys, *_: (queries, keys)  # the tensors are after RoPE
    for (name, dtype), (by, selector) in product(DTYPES.items(), SELECTORS.items()):
        for label, layers in sources(dtype, LENGTHS, REAL, 64):
            function = f"select_tokens_by_attn_universal, {selector}"
            row = Agreement(project, version, function, f"OmniKV, by={by}", name, label, "chosen sets")
            for layer, share in product(layers, SHARES):
                compare(row, module, layer, int(share * (layer.n - 1)), by)
            yield row
    yield layers_compared(project, version, load(root, "modeling/spec_cache.py"))


def compare(row: Agreement, module: ModuleType, layer: Layer, budget: int, by: str) -> None:
    """The layer's last query and key are those of the decoded token."""
    prompt = Layer(layer.source, layer.queries[:, :-1], layer.keys[:, :-1]).state()
    cache = FilterLayer(prompt, budget, by, {})
    query, scaling = layer.queries[None, :, -1:], layer.keys.shape[2] ** -0.5
    cache.update(layer.keys[None, :, -1:], layer.keys[None, :, -1:])

    def exact() -> tuple[Tensor, Tensor]:
        return released(module, layer.float(), budget, by)

    theirs, scores = released(module, layer, budget, by)
    row.tally(cache.choose(query, scaling)[None], theirs, scores, f"{layer.source}, n={layer.n}, {budget}", exact)


def released(module: ModuleType, layer: Layer, budget: int, by: str) -> tuple[Tensor, Tensor]:
    """The prompt tokens [1, budget] that the released code chooses, and its scores [1, n]."""
    heads, _, head_dim = layer.queries.shape
    query = layer.queries[:, -1].flatten()[None, None]
    attention = SimpleNamespace(
        config={},
        num_heads=heads,
        num_key_value_heads=len(layer.keys),
        num_key_value_groups=layer.group,
        head_dim=head_dim,
        layer_idx=0,
        q_proj=lambda hidden: hidden,
        rotary_emb=lambda *_: (None, None),
        k_proj=lambda hidden: hidden[..., : len(layer.keys) * head_dim],
    )
    stored = SimpleNamespace(key_cache=[layer.keys[None]])
    with recorded_topk() as seen:
        chosen = module.select_tokens_by_attn_universal(
            attention, query, None, stored, budget, layer.n - 1, 0, SELECTORS[by]
        )
    return chosen, seen[0]


def layers_compared(project: str, version: str, module: ModuleType) -> Agreement:
    """Which layers read chosen tokens, by number of layers, filters and waits."""
    row = Agreement(project, version, "OmniKVMultiStageCache.__init__", "OmniKV", "float32", "random", "layers")
    small = random_layer("MQA", 4, torch.float32).state()
    for filters, depth, wait in product(FILTERS, DEPTHS, WAITS):
        whole = [*range(filters[0]), *filters, depth]
        theirs = module.OmniKVMultiStageCache(whole, depth, wait, real_offload=False).layer_state
        state = PrefillState([small] * depth, torch.zeros(1))
        caches = OmniKV(filters=filters, of=depth, wait=wait).compress(state, 2)
        row.cases += 1
        for index, cache in enumerate(caches):
            row.compared += 1
            equal = isinstance(cache, ReadingLayer) == theirs[index][0]
            row.equal += equal
            row.different += not equal
    return row
