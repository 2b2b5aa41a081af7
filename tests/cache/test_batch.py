"""Settings that decode as one batch read as they do one by one, or say from where they may not."""

import json

import pytest
import torch

from kvbench.cache.base import LayerCache
from kvbench.evaluation.decode import GAP_NOISE, batched, choose, decode, generate
from kvbench.methods import FullKV
from kvbench.prefill import Needs, prefill
from kvbench.records import load
from tests.support.answers import agree
from tests.support.config import method
from tests.support.every_method import state
from tests.support.paths import ROOT
from tests.support.representatives import CACHES
from tests.support.runs import arguments, comparable, run
from tests.support.tiny import SHAPES, prompt, tiny_model

pytestmark = pytest.mark.heavy


@pytest.mark.parametrize("family, layout", SHAPES)
def test_a_batch_of_one_setting_and_others_gives_each_its_own_text(family, layout):
    model, names = tiny_model(family, layout, head_dim=32), ["full", "snapkv", "streaming_llm", "pyramidkv_paper"]
    methods = [method(name) for name in names]
    needs = methods[0].needs | methods[1].needs | methods[3].needs
    state = prefill(model, prompt(90), needs)
    every = [chosen.compress(state, 40) for chosen in methods for _ in range(2)]
    alone = [generate(model, caches, state.logits, 25, frozenset()) for caches in every[::2]]
    batch = decode(model, batched(every[1::2]), state.logits.expand(4, -1), 25, frozenset())
    assert all(agree(one, other.tokens) for one, other in zip(batch, alone, strict=True))
    assert len({tuple(one.tokens) for one in alone}) > 1, "nothing was told apart"
    assert [one.steps for one in batch] == [24] * 4


def test_a_sequence_that_ends_leaves_the_batch_and_the_others_go_on():
    model = tiny_model().double()
    state = prefill(model, prompt(80), method("snapkv").needs)
    full, snap = (lambda: FullKV().compress(state, 80)), (lambda: method("snapkv").compress(state, 40))
    first, second = (generate(model, made(), state.logits, 30, frozenset()).tokens for made in (full, snap))
    stop = next(token for token in second if token not in first)
    one, other, third = decode(
        model, batched([full(), snap(), full()]), state.logits.expand(3, -1), 30, frozenset({stop})
    )
    assert one.tokens == third.tokens == first and one.steps == 29
    assert other.tokens == second[: second.index(stop)] and other.steps == second.index(stop)
    assert other.seconds < one.seconds


MEASURED = json.loads((ROOT / "results/benchmarks/batch_rounding.json").read_text())["largest_change_of_a_gap"]


@pytest.mark.parametrize("dtype", GAP_NOISE, ids=str)
def test_close_calls_are_those_that_rounding_in_a_batch_could_change(dtype):
    """20 against 1 or 18 is no close call, in bfloat16 neither; a gap of the measured noise is one."""
    noise = MEASURED[str(dtype).removeprefix("torch.")] * torch.finfo(dtype).eps * 20
    rows = [[20.0, 1.0, 0.0], [20.0, 18.0, 0.0], [20.0, 20.0 - noise, 0.0], [20.0, 20.0, -3.0]]
    choice = choose(torch.tensor(rows, dtype=dtype))
    assert [x.tolist() for x in choice] == [[0, 0, 0, 0], [False, False, True, True], [True] * 4]
    # the scale is the largest logit, whichever token it is of; excluded tokens have none
    rows = [[0.5, 0.5 - noise, -20.0], [2.0, 1.0, -torch.inf]]
    assert choose(torch.tensor(rows, dtype=dtype)).close.tolist() == [True, False]


def test_the_bound_of_a_close_call_is_about_twice_what_was_measured():
    for dtype, bound in GAP_NOISE.items():
        assert 2 <= bound / MEASURED[str(dtype).removeprefix("torch.")] < 2.5


@pytest.mark.parametrize("name", CACHES)
def test_only_caches_that_decide_nothing_while_decoding_are_batched(name):
    """A cache that batches leaves its prompt as compression did, and decoded tokens are its last rows, untouched."""
    caches = method(name).compress(state(60), 40)
    kinds = {type(cache).__name__ for cache in caches if cache.batches}
    assert kinds <= {
        "DenseLayer",
        "UnionLayer",
        "RaggedLayer",
        "SlidingLayer",
        "DuoLayer",
        "ThinKeysLayer",
        "BiasedLayer",
    }
    assert not LayerCache.batches, "a cache of a user's own decodes alone unless it says otherwise"


def test_a_run_in_batches_has_the_records_of_one_by_one(undisturbed, tiny_folder, tmp_path):
    single = run(*arguments(tiny_folder, tmp_path, "decode.batch=1"))
    assert load(undisturbed)["close_call"].isna().all(), "rounding could turn a token"
    assert comparable(single) == comparable(undisturbed)
    assert [set(load(folder)["decode_batch"]) for folder in (single, undisturbed)] == [{1}, {9}]


def test_with_batch_all_every_setting_decodes_in_the_batch(tiny_folder, tmp_path):
    methods = "method=[full,fp8_token,minicache,spindle]"
    frames = {}
    for batch in ("all", "auto"):
        folder = run(*arguments(tiny_folder, tmp_path / batch, methods, "limit=1", f"decode.batch={batch}"))
        frames[batch] = load(folder).sort_values("key")
    sizes = {batch: dict(zip(frame["setting"], frame["decode_batch"], strict=True)) for batch, frame in frames.items()}
    assert set(sizes["all"].values()) == {len(sizes["all"])} and sizes["auto"]["fp8_token"] == 1
    for one, other in zip(*(frame.itertuples() for frame in frames.values()), strict=True):
        assert (one.key, one.kept_per_layer, one.stored_bytes) == (other.key, other.kept_per_layer, other.stored_bytes)


@pytest.mark.heavy
def test_the_real_model_reads_the_same_in_a_batch(embedded):
    ids = embedded.encode("Tell me how bread is baked, step by step. " * 8, chat=True)
    methods = [method(name) for name in ("full", "snapkv", "h2o")]
    state = prefill(embedded.model, ids, Needs(window=32, column_sums=True))
    every = [chosen.compress(state, 60) for chosen in methods for _ in range(2)]
    stop = embedded.stop_tokens
    alone = [generate(embedded.model, caches, state.logits, 5, stop) for caches in every[::2]]
    batch = decode(embedded.model, batched(every[1::2]), state.logits.expand(3, -1), 5, stop)
    assert all(agree(one, other.tokens) for one, other in zip(batch, alone, strict=True))
