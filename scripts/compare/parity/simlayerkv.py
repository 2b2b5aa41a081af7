"""SimLayerKV's lazy-layer test and trimming: its attention and model forward at the first decoded token."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import torch
from torch import Tensor

from kvbench.methods import SimLayerKV
from kvbench.prefill import LayerState
from scripts.compare.parity.agreement import Agreement
from scripts.compare.parity.checkout import commit, load
from scripts.compare.parity.stand_ins import ListCache, attention_module, digits, undigits
from scripts.compare.parity.tensors import DTYPES, LAYOUTS, Layer, random_layer, real_layers

SINKS, WINDOW = 4, 1024  # fixed in the released code
LENGTHS = (600, 1023, 1027, 1028, 1029, 1500, 3000)
PULLS = (0.0, 0.3, 0.45, 0.6, 0.8, 1.2)  # of the decoded query towards the first key: scores from low to near 1
DELTAS = (0.0, 0.2, 0.4, 0.5, 0.65, 0.8, 0.85, 0.9, 0.95)


def run(project: str, root: Path, file: str) -> Iterator[Agreement]:
    attention = load(root, "LongBench/SimLayerKV_attention_llama.py")
    module, version = load(root, file, SimLayerKV_attention_llama=attention), commit(root)
    for name, dtype in DTYPES.items():
        for source in ("random", "SmolLM2-135M"):
            function = "LlamaModel.forward, ori_forward"
            row = Agreement(project, version, function, "SimLayerKV, variant=decode", name, source, "layer caches")
            row.note = f"each at {len(DELTAS)} thresholds; largest gap: of the lazy score, absolute"
            for layers in random_models(dtype) if source == "random" else real_models(dtype):
                for delta in DELTAS:
                    compare(row, module, attention, layers, delta)
            yield row


def random_models(dtype: torch.dtype) -> Iterator[list[Layer]]:
    for seed, layout in enumerate(LAYOUTS):
        for n in LENGTHS:
            layers = [random_layer(layout, n, dtype, seed=seed + 10 * i) for i in range(len(PULLS))]
            for layer, pull in zip(layers, PULLS, strict=True):
                first = layer.keys[:, 0].repeat_interleave(layer.group, dim=0)
                layer.queries[:, -1] = layer.queries[:, -1] * 0.3 + pull * 2 * first
            yield layers


def real_models(dtype: torch.dtype) -> Iterator[list[Layer]]:
    for n in (1100, 2000):
        yield [layer for _, layer in real_layers((n,), dtype, every=2)]


def compare(row: Agreement, module, attention, layers: list[Layer], delta: float) -> None:
    row.cases += 1
    theirs, their_scores = released(module, attention, layers, delta)
    ours, our_scores = kept_by_kvbench(layers, delta)
    again = None
    for at, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
        row.compared += 1
        row.largest_gap = max(row.largest_gap, abs(our_scores[at] - min(1, their_scores[at])))
        if equal_sets(mine, other):
            row.equal += 1
            continue
        if layers[at].dtype != "float32":
            again = again or released(module, attention, [layer.float() for layer in layers], delta)
            if equal_sets(mine, again[0][at]):
                row.dtype_rounding += 1
                continue
        row.different += 1
        if len(row.examples) < 5:
            sizes = f"kept {mine.shape[-1]} and {other.shape[-1]}"
            scores = f"scores {our_scores[at]:.6f} and {their_scores[at]:.6f}"
            row.examples.append(f"{layers[at].source}, n={layers[at].n - 1}, delta={delta}: {sizes}, {scores}")


def equal_sets(ours: Tensor, theirs: Tensor) -> bool:
    """Whether every KV head keeps the same positions; the released code holds some twice below 1,028 tokens."""
    return all(set(a.tolist()) == set(b.tolist()) for a, b in zip(ours, theirs, strict=True))


def values(layer: Layer) -> Tensor:
    """Positions as values [num_key_value_heads, n, head_dim] in the layer's dtype."""
    coded = digits(torch.arange(layer.n), layer.keys.shape[2], layer.keys.dtype)
    return coded.expand(layer.keys.shape)


def released(module, attention, layers: list[Layer], delta: float) -> tuple[list[Tensor], list[float]]:
    """Positions held after the first decoded token [num_key_value_heads, len] and the lazy score, of each layer."""
    cache, scores = ListCache(), []
    for index, layer in enumerate(layers):
        cache.update(layer.keys[None, :, :-1], values(layer)[None, :, :-1], index)

    def decoder(index: int, layer: Layer):
        this = attention_module(layer.queries[:, -1:], layer.keys[:, -1:], values(layer)[:, -1:], layer_idx=index)
        width = layer.keys.shape[2]
        unrotated = torch.ones(1, 1, width, dtype=layer.keys.dtype), torch.zeros(1, 1, width, dtype=layer.keys.dtype)

        def call(hidden, **kwargs):
            *_, score = attention.ori_forward(this, hidden, past_key_value=cache, position_embeddings=unrotated)
            scores.append(score.item())
            return (hidden, cache), score

        return call

    this = SimpleNamespace(
        config=SimpleNamespace(output_attentions=False, output_hidden_states=False, use_return_dict=True),
        embed_tokens=lambda ids: torch.zeros(1, 1, 1),
        layers=[decoder(index, layer) for index, layer in enumerate(layers)],
        norm=lambda hidden: hidden,
        gradient_checkpointing=False,
        training=False,
        _update_causal_mask=lambda *args: None,
    )
    ids = torch.zeros(1, 1, dtype=torch.long)
    module.LlamaModel.forward(this, input_ids=ids, past_key_values=cache, use_cache=True, threshold_stream=delta)
    return [undigits(held[0]) for held in cache.value_cache], scores


def kept_by_kvbench(layers: list[Layer], delta: float) -> tuple[list[Tensor], list[float]]:
    method, kept, scores = SimLayerKV(variant="decode", delta=delta, sinks=SINKS, window=WINDOW), [], []
    for index, layer in enumerate(layers):
        scaling, coded = layer.keys.shape[2] ** -0.5, values(layer)
        state = LayerState(layer.keys[:, :-1], coded[:, :-1], scaling, len(layer.queries))
        cache = method.compress_layer(state, index, len(layers), 0)
        cache.update(layer.keys[None, :, -1:], coded[None, :, -1:])
        cache.attend(layer.queries[None, :, -1:], scaling)
        kept.append(undigits(cache.inner.v.view[0]))
        scores.append(method.decoding_score(layer.queries[:, -1:], layer.keys, scaling).item())
    return kept, scores
