"""Perplexity and bits per byte of a text behind compressed caches equal plain recomputations."""

import math

import pytest
import torch
from transformers import AutoModelForCausalLM

from kvbench.benchmarks import Sample
from kvbench.evaluation.evaluate import evaluate
from kvbench.evaluation.prompts import tokenise
from kvbench.evaluation.record import Run
from kvbench.evaluation.settings import Setting
from kvbench.records.store import Store
from tests.support.config import method
from tests.support.given import Given

TEXT = "The harbour lies in the north. The market opens at eight, the ferry leaves at nine and returns at noon. "
SAMPLE = Sample("a", TEXT * 3, (), 24, continuation="The ferry leaves at ten, and the market closes.", chat=False)
SETTINGS = [
    Setting("full", method("full"), '{"f": 1}'),
    Setting("streaming_llm", method("streaming_llm"), '{"s": 1}', budget=20),
    Setting("streaming_llm_all", method("streaming_llm"), '{"b": 1}', budget=1000),
]


@pytest.fixture
def distances(tmp_path, tiny):
    run = Run("run", "r", tiny, Given([SAMPLE]), SETTINGS, distance=True)
    run.benchmark.score = lambda sample, prediction: {}
    with Store(tmp_path) as store:
        return {record["setting"]: record["distance"] for record in evaluate(run, [SAMPLE], store)}


def test_full_kv_scores_a_text_as_one_pass_of_the_model_does(distances, tiny):
    model = AutoModelForCausalLM.from_pretrained(tiny.source, attn_implementation="sdpa")
    context = tokenise(tiny, SAMPLE, "visible").context
    tokens = torch.tensor(tiny.plain_tokens(SAMPLE.continuation))
    with torch.inference_mode():
        logits = model(input_ids=torch.cat([context, tokens])[None]).logits[0, len(context) : -1]
    nll = -logits.log_softmax(-1).gather(1, tokens[1:, None]).double().sum().item()
    size = len(tiny.tokenizer.decode(tokens[1:].tolist()).encode())
    assert distances["full"]["nll"] == pytest.approx(nll / (len(tokens) - 1), rel=1e-4)
    assert distances["full"]["bits_per_byte"] == pytest.approx(nll / math.log(2) / size, rel=1e-4)


def test_a_budget_that_does_not_bind_scores_as_full_kv_and_one_that_does_scores_otherwise(distances):
    full, same, other = (distances[setting.label] for setting in (SETTINGS[0], SETTINGS[2], SETTINGS[1]))
    assert same["nll"] == pytest.approx(full["nll"], rel=1e-5) and same["kl"] == pytest.approx(0, abs=1e-6)
    assert abs(other["nll"] - full["nll"]) > 1e-3 and other["kl"] > 1e-4


def test_no_answer_is_generated_beyond_the_first_token(tmp_path, tiny):
    run = Run("run", "r", tiny, Given([SAMPLE]), SETTINGS[:1], distance=True)
    run.benchmark.score = lambda sample, prediction: {}
    with Store(tmp_path) as store:
        assert [len(record["tokens"]) for record in evaluate(run, [SAMPLE], store)] == [1]
