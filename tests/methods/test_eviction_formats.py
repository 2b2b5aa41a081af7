"""Formats under evictions: alone and in a batch, token by token and in blocks.

Every format under evictions with equal heads and with unequal ones, every eviction in a format of single tokens and in
one of groups of tokens.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import fields, is_dataclass, replace
from functools import cache

import pytest
import torch
from pytest import approx
from torch import Tensor

from kvbench.cache.base import LayerCache
from kvbench.cache.reserve_ratio import ReserveRatio
from kvbench.errors import UserError
from kvbench.evaluation.cache_checks import check_bytes, check_lengths
from kvbench.evaluation.decode import batched, read_all
from kvbench.evaluation.settings import Setting
from kvbench.evaluation.steps import step
from kvbench.methods import (
    GEAR,
    KVTC,
    Codebook,
    Dense,
    Fp8,
    Ggml,
    Kivi,
    KVQuant,
    Microscaling,
    Palu,
    Rerotated,
    Storage,
    ThinK,
    TurboQuant,
)
from kvbench.methods.base.method import Method
from kvbench.methods.selection import Selection
from tests.support.config import NAMES, quantising
from tests.support.every_method import LAYERS, N, model, pass_of, setting, state, steps
from tests.support.representatives import every_third, nightly
from tests.support.tiny import prompt

pytestmark = pytest.mark.heavy

FORMATS: dict[str, Storage] = {
    **{f"fp8 {scale}": Fp8(scale) for scale in ("unit", "head", "token", "channel")},
    **{name: Ggml(name, name) for name in ("q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl")},
    "q8_0 q4_0 rotated": Ggml("q8_0", "q4_0", "hadamard"),
    **{
        name: Microscaling(name, name)
        for name in ("nvfp4", "mxfp4", "mxfp6_e2m3", "mxfp6_e3m2", "mxfp8_e4m3", "mxfp8_e5m2")
    },
    "kivi": Kivi(4, 32, 32),
    "kivi k8v2": Kivi(residual=32, key_bits=8, value_bits=2),
    **{f"turboquant {bits}": TurboQuant(bits) for bits in (4, 3, 2)},
    "turboquant k8v4": TurboQuant(4, keys="fp8", values="uniform", raw_layers=1),
    **{f"kvquant {bits}": KVQuant(bits) for bits in (4, 3, 2)},
    "gear": GEAR(buffer=2),
    "gear 2 bits": GEAR(2, group=4, buffer=4),
    "kvtc": KVTC(8.0, sinks=2, recent=2),
    "palu": Palu(0.9),
    "codebook": Codebook(window=8),
    "think": ThinK(recent=4),
    "rerotated": Rerotated(),
    "dense": Dense(),
}
FORMATS |= quantising(but=FORMATS.values())
STEPS = 3
# Equal numbers of tokens in KV heads or in single query heads; other numbers in every head, or whole heads and windows.
LAYOUTS = [["snapkv", "pyramidkv_paper"], ["adakv", "kvzip_head"]]
KINDS = ["fp8 token", "kivi"]  # coded token by token, quantised in groups of tokens
REFUSED = (
    r"decode_compression drops single tokens|holds the same number of tokens in every head|"
    r"decode=(update|evict) .*dense|variant=decode .* ThinK reads them"
)


def with_storage(part: Method, storage: Storage) -> Method:
    """The method with another storage, in the evictions that it consists of, too."""
    names = {field.name for field in fields(part)}
    parts = {name: with_storage(getattr(part, name), storage) for name in names & {"others", "policy"}}
    return replace(part, **parts, **({"storage": storage} if "storage" in names else {}))


def takes_storage(part: Method) -> bool:
    names = {field.name for field in fields(part)} if is_dataclass(part) else set()
    return "storage" in names or ("policy" in names and takes_storage(part.policy))


@cache
def evictions() -> list[str]:
    """A preset of every class of eviction with every way to share the budget, by what distinguishes it."""
    found: dict[tuple[object, ...], str] = {}
    for name in NAMES:
        method = setting(name).method
        if not takes_storage(method):
            continue
        parts = [type(getattr(method, part, None)) for part in ("allocation", "heads", "policy", "others")]
        choices = [getattr(method, part, None) for part in ("granularity", "decode", "variant")]
        compressed = getattr(method, "decode_compression", None) is None
        kind = (type(method), *parts, *choices, compressed, type(method.plan(N, LAYERS, N)))
        found.setdefault(kind, name)
    return list(found.values())


def logits_of(rows: Sequence[list[LayerCache]], tokens: Tensor) -> Tensor:
    """The logits after each of tokens [t], read one by one: [rows, t, vocab_size]."""
    cache = batched(rows)
    positions = torch.full((1, 1), N)
    outputs = [step(model(), cache, token.expand(len(rows)), positions) for token in tokens]
    return torch.stack(outputs, dim=1)


def compressed(one: Setting) -> list[LayerCache]:
    source, budget = pass_of(one, N)
    return source.compress(one.method, budget).caches


def copies(one: Setting) -> Iterable[list[LayerCache]]:
    source, budget = pass_of(one, N)
    return source.compress(one.method, budget).copies(3)


def pairs() -> list:
    """An eviction and a format, as parameters: each format with an eviction of each layout, each eviction with each
    kind of format; daily each format with one layout and each eviction with one kind, the others nightly."""
    every = {
        (names[number % 2], form): (number + place) % 2 == 0
        for place, names in enumerate(LAYOUTS)
        for number, form in enumerate(FORMATS)
    }
    for number, name in enumerate(evictions()):
        for place, form in enumerate(KINDS):
            every.setdefault((name, form), (number + place) % 2 == 0)
    return [pair if daily else nightly(pair) for pair, daily in every.items()]


def assert_near(found: Tensor, expected: Tensor) -> None:
    """Within a twentieth of what logits differ by: rounding may move a decoded number to the next code."""
    assert found.isfinite().all()
    assert float((found - expected).abs().mean()) < 0.05 * float(expected.std())


@pytest.mark.parametrize(("name", "form"), pairs())
@torch.inference_mode()
def test_a_format_decodes_the_same_alone_in_a_batch_and_in_blocks(name: str, form: str) -> None:
    settings = [setting(name, ratio) for ratio in (0.3, 0.6)]
    try:
        settings = [replace(one, method=with_storage(one.method, FORMATS[form])) for one in settings]
    except UserError as error:
        assert re.search(REFUSED, str(error)), error
        return
    tokens = prompt(STEPS, seed=5)
    singles, rows, others = zip(*(copies(one) for one in settings), strict=True)
    alone = []
    for caches in singles:
        check_bytes(caches)
        alone.append(logits_of([caches], tokens)[0])
        check_bytes(caches)
        check_lengths(caches, N + STEPS)
    together = logits_of(rows, tokens)
    blocks = [read_all(model(), batched([caches]), tokens)[0] for caches in others]
    for one, row, block in zip(alone, together, blocks, strict=True):
        assert_near(row, one)
        assert_near(block, one)


@pytest.mark.parametrize(
    "form", every_third((form for form, storage in FORMATS.items() if storage.takes_ragged), "nvfp4")
)
@torch.inference_mode()
def test_a_layer_may_keep_no_token(form: str) -> None:
    """Heads that share the budget of all layers may leave one without: between two others, and alone."""
    chosen = torch.rand(LAYERS, 2, N, generator=torch.Generator().manual_seed(3)) < 0.3
    chosen[1] = False
    layers, selections = state(N).layers, [Selection(None, 20, chosen=mask) for mask in chosen]
    caches = FORMATS[form].store_all(layers, selections)
    alone = FORMATS[form].store_all(layers[1:2], selections[1:2])
    assert alone[0].kept == caches[1].kept and caches[1].kept.per_head == (0, 0)
    for stored in (caches, alone):
        ratio = ReserveRatio.from_layers([cache.kept for cache in stored], 1, 1)
        assert ratio.r1 == approx(chosen.float().mean().item() if stored is caches else 0)
        assert (ratio.r > 0) == (ratio.r_corrected > 0) == (stored is caches)
        assert all(out.isfinite().all() for out in steps(stored, 40))
        check_bytes(stored)
        check_lengths(stored, N + 40)
