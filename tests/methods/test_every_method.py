"""What holds for every file of conf/method, composed as the command composes it."""

from copy import deepcopy
from functools import cache

import pytest
import torch

from kvbench.evaluation.cache_checks import check_bytes, check_lengths, check_unchanged, tensors_of
from kvbench.evaluation.decode import generate
from kvbench.evaluation.prefill_passes import SharedPass, StreamedPass
from kvbench.methods import FullKV
from kvbench.methods.facts import never_full
from kvbench.prefill import FullPrefill
from tests.support.answers import agree
from tests.support.every_method import (
    LAYERS,
    STEPS,
    N,
    check_kept,
    model,
    pass_of,
    setting,
    shared_pass,
    state,
    steps,
)
from tests.support.representatives import CACHES, REPRESENTATIVES, by_kind
from tests.support.tiny import prompt


def tensors_in(caches) -> list[torch.Tensor]:
    return [x for layer in caches for x in layer.tensors()]


@cache
def tokens_of_full() -> list[int]:
    full = shared_pass(N, FullPrefill()).state
    return generate(model(), FullKV().compress(full, N), full.logits, STEPS, frozenset()).tokens


@pytest.mark.heavy
@pytest.mark.parametrize("name", by_kind())
def test_from_prompt_to_answer(name):
    for ratio in (0.1, 0.5):
        one = setting(name, ratio)
        source, budget = pass_of(one, N)
        tensors = tensors_of(source.state)
        before = [x.clone() for x in tensors]
        compressed = source.compress(one.method, budget)
        caches = compressed.caches
        check_bytes(caches)
        assert [layer.filled_bytes for layer in caches] == [layer.nbytes for layer in caches]
        check_kept(one, caches, N, budget, compressed.full_bytes)
        stored = [x.clone() for x in tensors_in(caches)]
        tokens = generate(model(), caches, compressed.logits, STEPS, frozenset()).tokens
        check_bytes(caches)
        check_kept(one, caches, N, budget, compressed.full_bytes)
        check_lengths(caches, N + STEPS - 1)
        assert len(tokens) == STEPS
        again = source.compress(one.method, budget)
        assert all(torch.equal(a, b) for a, b in zip(stored, tensors_in(again.caches), strict=True))
        if ratio == 0.1:  # with the same caches, tokens of one ratio show that decoding does not vary
            assert generate(model(), again.caches, again.logits, STEPS, frozenset()).tokens == tokens
        check_unchanged(tensors, before)
        if not one.method.takes_budget:
            return


@pytest.mark.heavy
@pytest.mark.parametrize("name", by_kind(name for name in REPRESENTATIVES if setting(name).method.streams))
def test_streaming_makes_the_caches_of_a_shared_pass(name):
    one = setting(name, 0.3)
    source, budget = pass_of(one, N)
    streamed = StreamedPass(model(), prompt(N), one.method.plan(N, LAYERS, budget)).compress(one.method, budget)
    shared = source.compress(one.method, budget)
    assert streamed.peak_bytes <= shared.peak_bytes
    assert [layer.kept for layer in streamed.caches] == [layer.kept for layer in shared.caches]
    first, second = (tensors_in(x.caches) for x in (streamed, shared))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    outputs = [generate(model(), x.caches, x.logits, 3, frozenset()).tokens for x in (streamed, shared)]
    assert outputs[0] == outputs[1]


@pytest.mark.parametrize("name", REPRESENTATIVES)
def test_a_budget_that_does_not_bind_is_fullkv_where_that_is_promised(name):
    budget = N + STEPS
    one = setting(name, budget=budget)
    source, _ = pass_of(one, N)
    compressed = source.compress(one.method, budget)
    early = check_kept(one, compressed.caches, N, budget, compressed.full_bytes)
    answer = generate(model(), compressed.caches, compressed.logits, STEPS, frozenset())
    if why := never_full(one.method):
        late = check_kept(one, compressed.caches, N, budget, compressed.full_bytes)
        ratio = late if one.method.compress_at == "first_decode" else early
        assert ratio.r < 1 and ratio.r_bytes < 1, f"{name} kept everything: {why}?"
        return
    full = shared_pass(N, FullPrefill()).state
    same = torch.equal(compressed.logits, full.logits) and agree(answer, tokens_of_full())
    assert same, f"{name} is not FullKV, and no class of its parts says why in `never_full` (kvbench/methods/facts.py)"


@pytest.mark.parametrize(
    ("name", "dtype"),
    [(name, torch.bfloat16) for name in REPRESENTATIVES] + [(name, torch.float16) for name in CACHES],
    ids=str,
)
def test_half_precision_neither_overflows_nor_loses_its_numbers(name, dtype):
    """Keys and values of up to some hundreds: squares of their norms are beyond float16."""
    scale = 100.0
    one = setting(name, 0.3)
    made = state(N, dtype, scale)
    caches = one.method.compress(made, one.budget_at(N, LAYERS))
    check_bytes(caches)
    for out in steps(caches, 6, dtype, scale):
        assert out.dtype == dtype and out.isfinite().all()


@cache
def overflowing():
    """The model, with an embedding that makes everything from the 40th token on NaN, and such a prompt."""
    broken, tokens = deepcopy(model()), prompt(N).clone()
    tokens[tokens == 5] = 6
    tokens[40] = 5
    with torch.no_grad():
        broken.get_input_embeddings().weight[5] = float("nan")
    return broken, tokens


@pytest.mark.parametrize("name", REPRESENTATIVES)
def test_a_prompt_on_which_the_model_overflows_is_compressed_and_its_answer_is_not_finite(name):
    """The run refuses its record, and goes on with the next sample."""
    one = setting(name)
    broken, tokens = overflowing()
    budget = one.budget_at(N, LAYERS)
    source = SharedPass(broken, tokens, one.method.plan(N, LAYERS, budget), one.method.needs)
    compressed = source.compress(one.method, budget)
    assert generate(broken, compressed.caches, compressed.logits, 3, frozenset()).not_finite == 0
