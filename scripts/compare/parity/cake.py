"""CAKE's attention forward of every layer, at prefill and for decoded tokens, against `cake_paper`'s parts."""

from collections.abc import Callable, Iterator
from copy import copy
from functools import partial
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import torch
from torch import Tensor
from transformers.models.llama.modeling_llama import repeat_kv

from kvbench.cache.base import Growing
from kvbench.methods import CAKE, Preference
from kvbench.prefill import PrefillState
from scripts.compare.parity import tensors
from scripts.compare.parity.agreement import Agreement, recorded_topk
from scripts.compare.parity.checkout import commit, load
from scripts.compare.parity.stand_ins import attention_module, digits, undigits
from scripts.compare.parity.tensors import LAYOUTS, Layer, random_layer, real_layers

WINDOW, LAYERS, STEPS = 32, 6, 4
BUDGETS = (48, 128, 256)
LENGTHS = (150, 300, 700)
TAUS = ((1.0, 1.0), (1.6, 0.4), (0.4, 0.6))  # two of the table's five models


def run(project: str, root: Path, file: str) -> Iterator[Agreement]:
    utils = load(root, "cake/utils.py")
    cache = load(root, "cake/cake_cache.py", cake_utils=utils)
    attention = SimpleNamespace(_flash_attention_forward=lambda query, *args, **kwargs: query)
    siblings = {"cake_cache": cache, "utils": utils, "transformers_modeling_flash_attention_utils": attention}
    module, version = load(root, file, **siblings), commit(root)
    module.repeat_kv, module.apply_rotary_pos_emb = repeat_kv, lambda query, key, *args: (query, key)
    for dtype in tensors.DTYPES:
        for source, prompts in (("random", random_prompts), ("SmolLM2-135M", real_prompts)):
            prefill = Agreement(project, version, "CakeprefillKVCache", "CAKE, alloc=official", dtype, source)
            decoding = Agreement(project, version, "CakeDecodingKVCache_LayerWise", "CAKE, decode=evict", dtype, source)
            for (example, layers), budget, taus in product(prompts(tensors.DTYPES[dtype]), BUDGETS, TAUS):
                n = layers[0].n - STEPS
                if budget >= n:
                    continue
                released = partial(Released, module, cache, n, budget, taus)
                method = CAKE(Preference(WINDOW, *taus, alloc="official"), decode="evict")
                compare(prefill, decoding, released, method, layers, n, budget, f"{example}, B={budget}, tau={taus}")
            yield prefill
            yield decoding


def random_prompts(dtype: torch.dtype) -> Iterator[tuple[str, list[Layer]]]:
    for layout, n in product(LAYOUTS, LENGTHS):
        layers = [random_layer(layout, n + STEPS, dtype, seed) for seed in range(LAYERS)]
        for index, layer in enumerate(layers):  # attention that is sharper in some layers than in others
            layer.keys = layer.keys * (0.3 + 0.4 * (index * 5 % LAYERS))
        yield f"{layout}, n={n}", layers


def real_prompts(dtype: torch.dtype) -> Iterator[tuple[str, list[Layer]]]:
    for n in LENGTHS[1:]:
        yield f"n={n}", [layer for _, layer in real_layers((n + STEPS,), dtype, every=5)]


class Released:
    """The released forward functions of all layers over one prompt, with what they scored."""

    def __init__(self, module, cache, n: int, budget: int, taus: tuple[float, float], layers: list[Layer]):
        self.module, self.layers, self.n = module, layers, n
        count = len(layers)
        heads, self.scores = len(layers[0].queries), []
        evict = cache.CakeprefillKVCache(budget, WINDOW, num_heads=heads, num_layers=count, use_cascading=True)
        self.config = SimpleNamespace(
            decoding_evict=[None] * count,
            prefill=[True] * count,
            prefill_cake_evict=[evict] * count,
            window_size=[WINDOW] * count,
            key_size=[budget - WINDOW] * count,
            tau1=taus[0],
            tau2=taus[1],
            gamma=200.0,
            _pre_quantization_dtype=layers[0].keys.dtype,
        )
        self.cache = cache.CakeCache()
        update = self.cache.update_score

        def recorded(preference, score: Tensor) -> None:
            self.scores.append(score[0].clone())
            update(preference, score)

        self.cache.update_score = recorded
        for index in range(count):
            self.forward(index, 0, n)

    def forward(self, index: int, start: int, end: int) -> None:
        layer = self.layers[index]
        queries, keys = layer.queries[:, start:end], layer.keys[:, start:end]
        values = digits(torch.arange(start, end), keys.shape[2], keys.dtype).expand_as(keys)
        attention = attention_module(
            queries, keys, values, layer_idx=index, is_causal=True, _flash_attn_uses_top_left_mask=False
        )
        attention.config = self.config
        hidden = torch.zeros(1, end - start, 1, dtype=keys.dtype)
        self.module.llama_attn_forward_cake(
            attention, hidden, past_key_value=self.cache, position_embeddings=(None, None)
        )

    def float(self) -> "Released":
        """The same values, and what is stored of them, in float32."""
        other = copy(self)
        other.layers, other.cache, other.config = (
            [layer.float() for layer in self.layers],
            copy(self.cache),
            copy(self.config),
        )
        other.config._pre_quantization_dtype = torch.float32
        for name in ("key_cache", "value_cache"):
            setattr(other.cache, name, [store.float() for store in getattr(self.cache, name)])
        return other

    def kept(self, index: int) -> Tensor:
        """Positions [heads, stored] in the order of the slots."""
        return undigits(self.cache.value_cache[index][0])

    def step(self, index: int, position: int) -> tuple[Tensor, Tensor | None]:
        """What a layer keeps after one more token, and the scores by position that it selected by."""
        before = torch.cat([self.kept(index), torch.full((len(self.kept(index)), 1), position)], dim=1)
        with recorded_topk() as seen:
            self.forward(index, position, position + 1)
        if not seen:
            return self.kept(index), None
        scores = torch.full((len(before), position + 1), float("nan"), dtype=seen[-1].dtype)
        return self.kept(index), scores.scatter_(1, before[:, :-WINDOW], seen[-1][0])


def compare(
    prefill: Agreement,
    decoding: Agreement,
    make: Callable[[list[Layer]], Released],
    method: CAKE,
    layers: list[Layer],
    n: int,
    budget: int,
    example: str,
) -> None:
    """Tally what both keep of the prompt, and after each decoded token, which begins for both from the same slots.

    In 16 bits the released code's budget of a layer may differ by a token: there no token is decoded. Nor is
    one in a layer that the cascade cut below its last share, to which the released code lets it grow again.
    """
    released = make(layers)
    states = [Layer(layer.source, layer.queries[:, :n], layer.keys[:, :n]).state() for layer in layers]
    for index, state in enumerate(states):
        state.values = digits(torch.arange(n), state.keys.shape[2], state.keys.dtype).expand_as(state.keys)
        state.index, state.num_layers = index, len(states)
    caches = method.compress(PrefillState(states, torch.zeros(1)), budget)
    exact: list[Released] = []

    def exactly(index: int) -> tuple[Tensor, Tensor]:
        if not exact:
            exact.append(make([layer.float() for layer in layers]))
        return exact[0].kept(index), exact[0].scores[index]

    for index, cache in enumerate(caches):
        ours, theirs = undigits(cache.v.view[0]), released.kept(index)
        scores = released.scores[index]
        prefill.tally(ours, theirs, scores, f"{example}, layer {index}", lambda index=index: exactly(index))
    lengths = [released.kept(index).shape[1] for index in range(len(caches))]
    limits = [share + WINDOW for share in released.cache.layer_budget]
    indices = [i for i, cache in enumerate(caches) if limits[i] <= lengths[i] == cache.k.view.shape[2]]
    for position, index in product(range(n, n + STEPS), indices):
        step(decoding, released, index, caches[index], position, f"{example}, layer {index}, after {position + 1}")


def step(decoding: Agreement, released: Released, index: int, cache, position: int, example: str) -> None:
    layer, new = released.layers[index], slice(position, position + 1)
    stored = released.cache.key_cache[index], released.cache.value_cache[index]
    cache.k, cache.v = (Growing(store.clone()) for store in stored)
    exact = released.float()
    theirs, scores = released.step(index, position)
    value = digits(torch.tensor([position]), layer.keys.shape[2], layer.keys.dtype).expand(len(layer.keys), 1, -1)
    cache.update(layer.keys[None, :, new], value[None])
    cache.attend(layer.queries[None, :, new], layer.keys.shape[2] ** -0.5)
    decoding.tally(undigits(cache.v.view[0]), theirs, scores, example, lambda: exact.step(index, position))
