"""Distances from FullKV equal a plain recomputation, and are there for the settings and tokens that they should be."""

import pytest
import torch
import torch.nn.functional as F
from transformers import AutoModelForCausalLM

from kvbench.benchmarks import Sample, Text
from kvbench.errors import UserError
from kvbench.evaluation.decode import batched, read
from kvbench.evaluation.distance import compare, loglik
from kvbench.evaluation.evaluate import evaluate
from kvbench.evaluation.prefill_passes import SharedPass
from kvbench.evaluation.prompts import tokenise
from kvbench.evaluation.record import Run
from kvbench.evaluation.settings import Setting
from kvbench.methods import FullKV, Kivi
from kvbench.prefill import FullPrefill
from kvbench.records.store import Store
from kvbench.runner.request import measures_distance
from tests.support.config import method
from tests.support.given import Given

pytestmark = pytest.mark.heavy

TEXT = "The harbour lies in the north. The market opens at eight, the ferry leaves at nine and returns at noon. " * 3
SAMPLES = [
    Sample("when", TEXT + "When does the ferry leave?", ("at nine",), 12, "When does the ferry leave?"),
    Sample("where", TEXT + "Where does the harbour lie?", (), 12, "Where does the harbour lie?"),
]
SETTINGS = [
    Setting("streaming_llm", method("streaming_llm"), '{"s": 1}', budget=40),
    Setting("full", method("full"), '{"f": 1}'),
    Setting("kivi", FullKV(storage=Kivi(group=8, residual=8)), '{"k": 1}'),
    Setting("pyramidinfer", method("pyramidinfer"), '{"p": 1}', ratio=0.5),
]


def records(folder, loaded, question="visible", settings=SETTINGS, distance=True, batch="auto"):
    run = Run("run", question, loaded, Given(SAMPLES), settings, question=question, distance=distance, batch=batch)
    run.benchmark.score = lambda sample, prediction: {}
    with Store(folder) as store:
        return {(record["sample"], record["setting"]): record for record in evaluate(run, SAMPLES, store)}


def step_by_step(loaded, sample, setting, question, tokens):
    """The logits that predict each of tokens, read one at a time behind the setting's caches: [t, vocab_size]."""
    prompt = tokenise(loaded, sample, question)
    source = SharedPass(loaded.model, prompt.context, FullPrefill(), setting.method.needs)
    compressed = source.compress(setting.method, setting.budget_at(len(prompt.context), 3))
    cache, rows = batched([compressed.caches]), [compressed.logits[None]]
    rows += [read(loaded.model, cache, token[None]) for token in torch.cat([prompt.question, tokens[:-1]])]
    return torch.cat(rows)[len(prompt.question) :]


def without_cache(loaded, sample, tokens):
    """The same under FullKV, by one forward pass of the model over prompt and answer."""
    model = AutoModelForCausalLM.from_pretrained(loaded.source, attn_implementation="sdpa")
    ids = torch.cat([tokenise(loaded, sample, "visible").context, tokens])
    with torch.inference_mode():
        return model(input_ids=ids[None], use_cache=False).logits[0, -len(tokens) - 1 : -1]


@pytest.mark.parametrize("question", ["visible", "hidden"])
def test_distances_equal_a_plain_recomputation(tmp_path, tiny, question):
    made = records(tmp_path, tiny, question)
    for sample in SAMPLES:
        tokens = torch.tensor(made[sample.id, "full"]["tokens"])
        if len(tokens) < sample.max_new_tokens:
            tokens = torch.cat([tokens, torch.tensor([tiny.tokenizer.eos_token_id])])
        full = without_cache(tiny, sample, tokens).log_softmax(-1)
        for setting in (SETTINGS[0], SETTINGS[2]):
            other = step_by_step(tiny, sample, setting, question, tokens).log_softmax(-1)
            skipped = 1 if question == "visible" else 0
            kl = F.kl_div(other[skipped:], full[skipped:], log_target=True, reduction="none").sum(-1)
            same = (full.argmax(-1) == other.argmax(-1))[skipped:]
            distance = made[sample.id, setting.label]["distance"]
            assert distance["kl"] == pytest.approx(kl.mean().item(), rel=2e-3, abs=1e-6)
            assert distance["top1"] == pytest.approx(same.float().mean().item())
            assert distance["agreed"] == pytest.approx(same.int().cumprod(0).float().mean().item())
            assert ("answer_loglik" in distance) == bool(sample.answers)
    answer = tiny.tokenizer("at nine", add_special_tokens=False, return_tensors="pt")["input_ids"][0]
    expected = [
        loglik(logits, answer)
        for logits in (
            step_by_step(tiny, SAMPLES[0], SETTINGS[0], question, answer),
            without_cache(tiny, SAMPLES[0], answer),
        )
    ]
    found = made["when", "streaming_llm 40"]["distance"]["answer_loglik"]
    assert found == pytest.approx(expected[0] - expected[1], abs=2e-3)


def test_full_kv_is_at_no_distance_from_itself(tmp_path, tiny):
    made = records(tmp_path, tiny, "hidden")
    assert made["where", "full"]["distance"] == {"kl": 0, "top1": 1, "agreed": 1}
    assert made["when", "full"]["distance"] == {"kl": 0, "top1": 1, "agreed": 1, "answer_loglik": 0}


def test_a_setting_of_another_pass_is_compared_with_the_full_one(tmp_path, tiny):
    distance = records(tmp_path, tiny)["where", "pyramidinfer 0.5"]["distance"]
    assert distance["kl"] > 0


def test_nothing_is_measured_unless_wanted(tmp_path, tiny):
    assert {record["distance"] for record in records(tmp_path, tiny, distance=False).values()} == {None}


@pytest.mark.heavy
@pytest.mark.parametrize("batch", ["auto", "1"])
def test_without_a_record_of_full_kv_to_make_its_answer_is_generated_for_the_others(tmp_path, tiny, batch):
    together = records(tmp_path / "together", tiny, batch=batch)
    alone = records(tmp_path / "alone", tiny, settings=SETTINGS[:1], batch=batch)
    resumed = tmp_path / "resumed"
    assert {setting for _, setting in records(resumed, tiny, settings=SETTINGS[1:2], batch=batch)} == {"full"}
    later = records(resumed, tiny, batch=batch)
    assert {setting for _, setting in later} == {"streaming_llm 40", "kivi", "pyramidinfer 0.5"}
    assert {setting for _, setting in alone} == {"streaming_llm 40"}
    for key in alone:
        expected = pytest.approx(together[key]["distance"], abs=1e-5)
        assert alone[key]["distance"] == expected
        assert later[key]["distance"] == expected


def test_distances_change_no_answer(tmp_path, tiny):
    with_them, without = (records(tmp_path / str(mode), tiny, distance=mode) for mode in (True, False))
    assert {key: record["tokens"] for key, record in with_them.items()} == {
        key: record["tokens"] for key, record in without.items()
    }
    for name in ("r_bytes", "stored_bytes", "peak_cache_bytes"):
        assert {key: record[name] for key, record in with_them.items()} == {
            key: record[name] for key, record in without.items()
        }


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_divergences_are_those_of_torch_over_the_whole_vocabulary(dtype):
    generator = torch.Generator().manual_seed(0)
    full, other = (torch.randn(300, 50, generator=generator).to(dtype) for _ in range(2))
    full[:, 7] = other[:, 7] = float("-inf")  # a token that the model never gives
    rest = [i for i in range(50) if i != 7]
    p, q = (x[:, rest].double().log_softmax(-1) for x in (full, other))
    expected = F.kl_div(q, p, log_target=True, reduction="none").sum(-1).mean()
    assert compare(full, other)["kl"] == pytest.approx(expected.item(), rel=1e-5)
    assert compare(full, full) == {"kl": 0, "top1": 1, "agreed": 1}
    assert compare(full[:0], other[:0]) == {}


def test_agreement_ends_at_the_first_other_token():
    full = torch.eye(4)
    other = full[[0, 1, 3, 3]]
    assert compare(full, other)["top1"] == 0.75
    assert compare(full, other)["agreed"] == 0.5


@pytest.mark.parametrize(
    "value, memory, scored, measured",
    [
        ("auto", "shared", True, False),
        ("auto", "shared", False, True),
        ("auto", "stream", False, False),
        (True, "shared", True, True),
        (False, "shared", False, False),
        (False, "stream", False, False),
    ],
)
def test_when_distances_are_measured(value, memory, scored, measured):
    assert measures_distance(value, memory, Given([], metrics=("exact",) if scored else ())) is measured


def test_a_stream_of_one_setting_has_no_full_kv_to_compare_with():
    with pytest.raises(UserError, match="distance=true compares each setting with FullKV"):
        measures_distance(True, "stream", Given([]))


@pytest.mark.parametrize(("value", "memory"), [(False, "shared"), ("auto", "stream")])
def test_a_text_without_distances_is_refused_as_it_has_no_other_value(value, memory, tmp_path):
    (tmp_path / "text.txt").write_text("words")
    option = "memory=stream" if memory == "stream" else "distance=false"
    with pytest.raises(UserError, match=f"{option} measures no distance from FullKV, and benchmark=text has no other"):
        measures_distance(value, memory, Text(path=str(tmp_path / "text.txt")))
