"""Every causal-LM class of the installed transformers is read as by `generate`, or refused in one line."""

import pytest
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from scripts.results.model_classes import page
from scripts.results.tiny_models.outcome import Outcome, outcome_of


@pytest.mark.parametrize(
    ("model_type", "kind", "why"),
    [
        ("llama", "equal", "logits differ by"),
        ("gemma3_text", "equal", "logits differ by"),
        ("bert", "refused", "BertLMHeadModel attends to later tokens"),
        ("falcon", "refused", "falcon takes no attention function"),
        ("deepseek_v3", "equal", "logits differ by"),
        ("musicgen", "not built", "AttributeError"),
    ],
)
def test_the_outcome_of_a_class(model_type, kind, why):
    outcome = outcome_of(model_type)
    assert (outcome.model_type, outcome.kind) == (model_type, kind)
    assert outcome.why.startswith(why)


def test_other_tokens_are_seen(monkeypatch):
    monkeypatch.setattr("kvbench.models.probe.check_reads_alike", lambda *_: None)
    assert outcome_of("bert").kind == "different"


def test_the_table_counts_outcomes_and_says_why():
    text = page([Outcome("a", "equal", "x"), Outcome("b", "refused", "one | line"), Outcome("c", "equal", "")])
    assert "| equal | 2 |" in text
    assert "Equal: a, c." in text
    assert "| b | refused | one / line |" in text


@pytest.mark.slow
@pytest.mark.parametrize("model_type", sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES))
def test_no_class_is_read_differently_or_ends_in_a_traceback(model_type):
    outcome = outcome_of(model_type)
    assert outcome.kind in {"equal", "refused", "not built"}, outcome
    assert "\n" not in outcome.why
