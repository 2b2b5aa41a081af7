"""LAVa: the released scores, and what the released forward of a model, with its cascade, leaves of a prompt."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from types import ModuleType, SimpleNamespace

import torch
from torch import Tensor
from transformers import Cache

from kvbench.methods import Eviction, LAVa, LAVaHeads, ScoreEntropy
from kvbench.prefill import PrefillState
from scripts.compare.parity import tensors
from scripts.compare.parity.agreement import Agreement
from scripts.compare.parity.checkout import commit, load
from scripts.compare.parity.kvzip import tally_scores
from scripts.compare.parity.stand_ins import digits, undigits
from scripts.compare.parity.tensors import LAYOUTS, Layer, random_layer, real_layers

CLASSES = "adaptive_snapkv/monkeypatch/snapkv_utils.py"
WINDOW, KERNEL, LAYERS, ALPHA = 32, 7, 6, 0.2
BUDGETS = (48, 64, 128, 256)
LENGTHS = (180, 300, 700, 1500)
PAPER = Eviction(ScoreEntropy("official"), LAVa(WINDOW, KERNEL), group_reduce="max", heads=LAVaHeads(ALPHA, "official"))


def run(project: str, root: Path, file: str) -> Iterator[Agreement]:
    classes = load(root, CLASSES)
    model, version = load(root, file, adaptive_snapkv_monkeypatch_snapkv_utils=classes), commit(root)
    for dtype in tensors.DTYPES:
        for source, prompts in (("random", random_prompts), ("SmolLM2-135M", real_prompts)):
            scored = Agreement(project, version, "calcul_attn_score", "LAVa", dtype, source, "scores")
            kept = Agreement(project, version, "MistralModel_forward, LavaKVCluster", "lava_paper", dtype, source)
            for example, layers in prompts(tensors.DTYPES[dtype]):
                for budget in (b for b in BUDGETS if b < 0.6 * layers[0].n):  # above, the released code does not run
                    released = Released(classes, model, layers, budget)
                    exact = Released(classes, model, [layer.float() for layer in layers], budget)
                    compare(scored, kept, released, exact, layers, budget, f"{example}, B={budget}")
            yield scored
            yield kept


def random_prompts(dtype: torch.dtype) -> Iterator[tuple[str, list[Layer]]]:
    for layout, n in product(LAYOUTS, LENGTHS):
        layers = [random_layer(layout, n, dtype, seed) for seed in range(LAYERS)]
        for index, layer in enumerate(layers):  # sharper attention in some layers, larger values in some heads
            layer.keys = layer.keys * (0.3 + 0.4 * (index * 5 % LAYERS))
            layer.values = random_layer(layout, n, dtype, seed=100 + index).keys
            layer.values = layer.values * torch.linspace(0.5, 2, len(layer.keys), dtype=dtype)[:, None, None]
        yield f"{layout}, n={n}", layers


def real_prompts(dtype: torch.dtype) -> Iterator[tuple[str, list[Layer]]]:
    for n in LENGTHS[1:]:
        yield f"n={n}", [layer for _, layer in real_layers((n,), dtype, every=5)]


class Lists(Cache):
    """The cache in which the released forward leaves what it keeps: the heads of a layer behind each other."""

    def __init__(self):
        self.key_cache: list[Tensor] = []
        self.value_cache: list[Tensor] = []

    def get_usable_length(self, length: int, layer: int = 0) -> int:
        return 0

    def update(self, keys: Tensor, values: Tensor, layer: int) -> None:
        self.key_cache.append(keys)
        self.value_cache.append(values)


@dataclass
class Released:
    """What the released forward of a model keeps of one prompt, its decoder layers replaced by the tensors of `layers`.

    A stand-in for a decoder layer does what the released attention does with keys, queries and values of a prompt, but
    stores positions in place of values.
    """

    classes: ModuleType
    module: ModuleType
    layers: list[Layer]
    budget: int

    def __post_init__(self):
        self.scores: list[Tensor] = []  # [num_key_value_heads, n - window] of each layer
        decoders = [self.decoder(index, layer) for index, layer in enumerate(self.layers)]
        names = {"base_capacity": self.budget, "window_size": WINDOW, "num_hidden_layers": len(decoders)}
        config = SimpleNamespace(**names, use_cache=True, output_attentions=False, output_hidden_states=False)
        model = SimpleNamespace(
            config=config,
            layers=decoders,
            norm=lambda hidden: hidden,
            gradient_checkpointing=False,
            training=False,
            _attn_implementation="flash_attention_2",
        )
        cache = Lists()
        hidden = torch.zeros(1, self.layers[0].n, 1)
        self.module.adaptive_MistralModel_forward_lava(
            model, inputs_embeds=hidden, past_key_values=cache, use_cache=True, return_dict=False
        )
        lengths = [decoder.self_attn.kv_cluster.head_lens.tolist() for decoder in decoders]
        self.kept = [
            [head.sort().values for head in undigits(values).split(heads)]
            for values, heads in zip(cache.value_cache, lengths, strict=True)
        ]

    def decoder(self, index: int, layer: Layer):
        cluster = self.classes.LavaKVCluster(
            WINDOW,
            KERNEL,
            "maxpool",
            self.budget,
            ALPHA,
            skip=0,
            normalize=False,
            layer_idx=index,
            num_hidden_layers=len(self.layers),
            gqa_support=True,
            num_key_value_groups=layer.group,
        )

        class Decoder(SimpleNamespace):
            def __call__(self, hidden: Tensor, **kwargs) -> tuple:
                return released(hidden, **kwargs)

        def released(hidden: Tensor, past_key_value: Cache, **kwargs) -> tuple:
            keys, queries, values = (x[None] for x in (layer.keys, layer.queries, layer.values))
            scores, sparsity = cluster.calcul_attn_score(keys, queries, values)
            self.scores.append(scores[0].clone())
            positions = digits(torch.arange(layer.n), keys.shape[3], keys.dtype).expand_as(keys)
            cluster.store(keys, queries, positions, scores, sparsity)
            return hidden, past_key_value

        return Decoder(self_attn=SimpleNamespace(kv_cluster=cluster, layer_idx=index))


def compare(
    scored: Agreement,
    kept: Agreement,
    released: Released,
    exact: Released,
    layers: list[Layer],
    budget: int,
    example: str,
) -> None:
    """Tally the scores, and what both keep, of which the sizes of layers and heads are a part."""
    states = [layer.state() for layer in layers]
    for index, (state, layer) in enumerate(zip(states, layers, strict=True)):
        state.values, state.index, state.num_layers = layer.values, index, len(layers)
    prompt_method = PAPER.for_prompt(PrefillState(states, torch.zeros(1)), budget)
    for index, state in enumerate(states):
        ours = PAPER.scores(state, WINDOW) / WINDOW  # the released code's are means over the window
        if budget == BUDGETS[0]:
            scored.cases += 1
            tally_scores(scored, ours, released.scores[index], exact.scores[index])
        mask = prompt_method.select(state, index, len(states), budget).mask(state)[:, 0]
        kept.tally(
            [row.nonzero()[:, 0] for row in mask],
            released.kept[index],
            released.scores[index],
            f"{example}, layer {index}",
            lambda index=index: (exact.kept[index], exact.scores[index]),
        )
