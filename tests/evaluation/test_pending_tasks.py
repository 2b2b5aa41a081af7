"""The order in which settings are compressed and decode, and what is held meanwhile."""

from weakref import WeakValueDictionary

import pytest

from kvbench.benchmarks import Sample
from kvbench.evaluation import evaluate
from kvbench.evaluation.prefill_passes import SharedPass
from kvbench.evaluation.settings import build_settings
from kvbench.methods.storage.fp8 import Fp8
from kvbench.records import load
from tests.support.config import method_configs
from tests.support.every_method import N, pass_of, setting
from tests.support.given import made
from tests.support.representatives import REPRESENTATIVES
from tests.support.runs import arguments, run

METHODS = "method=[full,snapkv,fp8_token,spindle]"


@pytest.mark.parametrize("name", REPRESENTATIVES)
def test_a_method_says_before_compression_whether_its_caches_decode_in_a_batch(name):
    one = setting(name)
    shared, budget = pass_of(one, N)
    assert one.method.batches == all(cache.batches for cache in shared.compress(one.method, budget).caches)


@pytest.fixture
def decoded(monkeypatch):
    """Of each batch that decodes: its settings, how many contexts are compressed, and how many prompts are whole."""
    compressed, passes, seen = WeakValueDictionary(), WeakValueDictionary(), []
    made, answered = SharedPass.compress, evaluate.answer

    def compress(self, method, budget):
        passes[id(self)] = self
        one = made(self, method, budget)
        compressed[id(one)] = one
        return one

    def answer(run, prompt, rows):
        seen.append(([row.setting.label for row in rows], len(compressed), len(passes)))
        return answered(run, prompt, rows)

    monkeypatch.setattr(SharedPass, "compress", compress)
    monkeypatch.setattr(evaluate, "answer", answer)
    return seen


def test_settings_that_decode_alone_do_so_while_no_other_setting_is_held(decoded, tiny_folder, tmp_path):
    run(*arguments(tiny_folder, tmp_path, METHODS, "limit=1"))
    alone = ["fp8_token", "spindle 0.2", "spindle 0.5"]
    assert decoded == [*(([name], 1, 1) for name in alone), (["full", "snapkv 0.2", "snapkv 0.5"], 3, 0)]


def test_with_distances_full_kv_answers_before_those_that_decode_alone(decoded, tiny_folder, tmp_path):
    run(*arguments(tiny_folder, tmp_path, METHODS, "limit=1", "distance=true"))
    alone = ["full", "fp8_token", "spindle 0.2", "spindle 0.5"]
    assert decoded == [*(([name], 1, 1) for name in alone), (["snapkv 0.2", "snapkv 0.5"], 2, 0)]


def test_with_distances_full_kv_stays_in_the_batch_where_no_setting_decodes_alone(decoded, tiny_folder, tmp_path):
    run(*arguments(tiny_folder, tmp_path, "method=[full,snapkv]", "limit=1", "distance=true"))
    assert decoded == [(["full", "snapkv 0.2", "snapkv 0.5"], 3, 0)]


def test_with_distances_full_kv_answers_first_where_a_method_wrongly_says_that_its_caches_batch(
    decoded, monkeypatch, tiny_folder, tmp_path
):
    monkeypatch.setattr(Fp8, "batches", True)
    folder = run(*arguments(tiny_folder, tmp_path, "method=[full,fp8_token]", "limit=1", "distance=true"))
    assert [names for names, *_ in decoded] == [["full"], ["fp8_token"]]
    assert load(folder)["distance"].notna().all()


def test_the_prompt_is_not_held_while_the_last_setting_decodes_alone(decoded, tiny_folder, tmp_path):
    run(*arguments(tiny_folder, tmp_path, "method=fp8_token", "limit=1"))
    assert decoded == [(["fp8_token"], 1, 0)]


def test_one_by_one_settings_decode_in_the_order_of_the_command(decoded, tiny_folder, tmp_path):
    run(*arguments(tiny_folder, tmp_path, METHODS, "limit=1", "decode.batch=1"))
    assert [names for names, *_ in decoded] == [
        [name] for name in ("full", "snapkv 0.2", "snapkv 0.5", "fp8_token", "spindle 0.2", "spindle 0.5")
    ]


QUESTIONS = [("Where does the harbour lie?", 4), ("When does the market open?", 40)]


def test_a_share_of_prompt_and_answer_is_each_questions_own_whichever_records_are_left(tiny, tmp_path):
    """Questions about one context share a compression only where their budgets are equal."""
    settings = build_settings(method_configs("knorm"), 0.5, None, {"every": 4, "of": "total"})
    context = "The harbour lies in the north. The market opens at eight, the ferry leaves at nine."
    samples = [
        Sample(question, context + question, ("x",), limit, question=question, chat=False)
        for question, limit in QUESTIONS
    ]
    together = made(tmp_path / "together", tiny, samples, settings=settings)
    for sample in samples:
        ((key, record),) = made(tmp_path / sample.question, tiny, [sample], settings=settings).items()
        assert together[key]["kept_per_layer"] == record["kept_per_layer"]
        assert together[key]["tokens"] == record["tokens"]
    first, second = together.values()
    assert first["kept_per_layer"] < second["kept_per_layer"]
