"""Formats of prompts read in chunks, formats that lose nothing, and storages of several layers together."""

import re
from dataclasses import replace

import pytest
import torch

from kvbench.errors import UserError
from kvbench.evaluation.cache_checks import check_bytes, check_lengths
from kvbench.evaluation.decode import generate
from kvbench.methods import KVTC, XKV, Dense, Kivi, MiniCache, Palu, Rerotated, Storage
from kvbench.prefill.chunked import in_chunks
from tests.methods.test_every_method import tokens_of_full
from tests.methods.test_eviction_formats import (
    FORMATS,
    REFUSED,
    STEPS,
    assert_near,
    compressed,
    logits_of,
    with_storage,
)
from tests.support.answers import agree
from tests.support.every_method import LAYERS, N, model, pass_of, setting, shared_pass
from tests.support.every_method import STEPS as ANSWER
from tests.support.representatives import every_third
from tests.support.tiny import prompt

pytestmark = pytest.mark.heavy

# One per kind: equal heads, single query heads, heads and layers of different lengths, budgets of layers.
KINDS = ["snapkv", "pyramidkv_paper", "adakv", "lava", "cake", "h2o"]
WHOLE: dict[str, Storage] = {
    "dense": Dense(),
    "rerotated": Rerotated(),
    "kivi": Kivi(4, 32, 256),
    "kvtc": KVTC(recent=256),
    "palu": Palu(1.0, 1),
}
JOINT: dict[str, Storage] = {"minicache": MiniCache(), "xkv": XKV(2, 0.5, 0.5)}


def stored(name: str, storage: Storage, ratio: float | None = 0.4, budget: int | None = None):
    """A setting with this storage, or None where the two are refused in one line."""
    one = setting(name, ratio, budget)
    try:
        return replace(one, method=with_storage(one.method, storage))
    except UserError as error:
        assert re.search(REFUSED, str(error)) and "\n" not in str(error), error
        return None


@pytest.mark.parametrize(
    ("name", "form"), every_third((name, form) for form in FORMATS for name in ("snapkv", "adakv"))
)
@torch.inference_mode()
def test_a_prompt_read_in_chunks_is_stored_as_one_read_at_once(name: str, form: str) -> None:
    one = stored(name, FORMATS[form])
    if one is None:
        return
    budget = one.budget_at(N, LAYERS)
    source = shared_pass(N, in_chunks(one.method.plan(N, LAYERS, budget), 33))
    chunked = source.compress(one.method, budget).caches
    check_bytes(chunked)
    tokens = prompt(STEPS, seed=5)
    assert_near(logits_of([chunked], tokens)[0], logits_of([compressed(one)], tokens)[0])


@pytest.mark.parametrize("form", WHOLE)
@pytest.mark.parametrize("name", KINDS)
def test_a_format_that_loses_nothing_is_fullkv_under_a_budget_of_the_whole_prompt(name: str, form: str) -> None:
    budget = N + ANSWER
    one = stored(name, WHOLE[form], None, budget)
    if one is None:
        return
    made = pass_of(one, N)[0].compress(one.method, budget)
    check_bytes(made.caches)
    assert agree(generate(model(), made.caches, made.logits, ANSWER, frozenset()), tokens_of_full())


@pytest.mark.parametrize("form", JOINT)
@pytest.mark.parametrize("name", ["full", "streaming_llm", "snapkv", "adakv", "lagkv", "simlayerkv"])
@torch.inference_mode()
def test_layers_stored_together_decode_the_same_alone_and_in_a_batch(name: str, form: str) -> None:
    try:
        settings = [setting(name, ratio) for ratio in (0.3, 0.6)]
        settings = [replace(one, method=with_storage(one.method, JOINT[form])) for one in settings]
    except UserError as error:
        assert re.search("needs the same tokens in every layer", str(error)) and "\n" not in str(error)
        assert name not in ("full", "streaming_llm")
        return
    tokens = prompt(STEPS, seed=5)
    alone = []
    for one in settings:
        caches = compressed(one)
        check_bytes(caches)
        alone.append(logits_of([caches], tokens)[0])
        check_bytes(caches)
        check_lengths(caches, N + STEPS)
    for row, one in zip(logits_of([compressed(one) for one in settings], tokens), alone, strict=True):
        assert_near(row, one)
