"""Marked spans: their tokens are found in the prompt, and records say what share of each survives."""

import json
from dataclasses import replace

import pytest
import torch

from kvbench.benchmarks import Sample
from kvbench.cache.kept_positions import kept_positions
from kvbench.cache.reserve_ratio import Kept
from kvbench.errors import UserError
from kvbench.evaluation.prompts import tokenise
from kvbench.evaluation.spans import kept_shares, marks_of
from kvbench.records import load
from tests.support.runs import reported

RULE = "Always answer in French."
TEXT = "The ferry captain swept the narrow bridge. The lookup tool takes a city. Nobody asked why the mill was green."
TOOL = "The lookup tool takes a city."
QUESTION = "What was green?"
SAMPLE = Sample(
    "one",
    f"{TEXT}\n\n{QUESTION}",
    ("the mill",),
    4,
    QUESTION,
    history=(("system", RULE),),
    spans=(("tool", TOOL), ("question", QUESTION)),
)


@pytest.mark.parametrize("question", ["visible", "hidden"])
def test_a_span_has_the_tokens_that_make_its_text(tiny, question):
    prompt = tokenise(tiny, SAMPLE, question)
    ids = [*prompt.context.tolist(), *prompt.question.tolist()]
    for name, text in {"system": RULE, "tool": TOOL, "question": QUESTION}.items():
        start, end = prompt.spans[name]
        assert text in tiny.tokenizer.decode(ids[start:end])
        assert text not in tiny.tokenizer.decode(ids[start + 1 : end])
        assert text not in tiny.tokenizer.decode(ids[start : end - 1])


def test_what_is_read_after_compression_stays():
    nothing = torch.empty(1, 0, dtype=torch.int64)
    layers = [Kept.tokens(0, 0, 10, 1, positions=kept_positions(nothing, 10, (8, 10)))]
    assert kept_shares({"behind": (10, 12), "half": (8, 12)}, layers, 10) == {"behind": 1.0, "half": 0.5}


def test_shares_are_means_over_layers_and_heads():
    first, second = torch.tensor([[2, 3, 9], [0, 1, 2]]), torch.tensor([[0, 1, 2], [7, 8, 9]])
    marks = marks_of([{"a": (2, 6)}, {"b": (8, 14)}], 10)
    assert marks == (2, 6, 8, 10)
    layers = [Kept.tokens(3, 3, 10, 2, positions=kept_positions(kept, 10, marks)) for kept in (first, second)]
    shares = kept_shares({"a": (2, 6), "b": (8, 14)}, layers, 10)
    assert shares == {"a": pytest.approx((3 / 8 + 1 / 8) / 2), "b": pytest.approx(((1 / 4 + 2 / 4) / 2 * 2 + 4) / 6)}
    assert kept_shares({"a": (2, 6)}, [replace(layers[0], positions=None), layers[1]], 10) is None


@pytest.mark.parametrize(("text", "count"), [("never said", 0), ("The ", 2)])
def test_a_span_must_occur_once(tiny, text, count):
    with pytest.raises(UserError, match=f"span 'x' occurs {count} times in its prompt, not once"):
        tokenise(tiny, replace(SAMPLE, spans=(("x", text),)), "visible")


def test_records_and_table_have_the_share_of_every_span(tiny_folder, tmp_path):
    path = tmp_path / "prompts.jsonl"
    messages = [{"role": "system", "content": RULE}, {"role": "user", "content": f"{TEXT} " * 2 + TOOL + QUESTION}]
    messages[1]["content"] = messages[1]["content"].replace(TOOL, "", 2)
    rows = [{"messages": messages, "spans": {"tool": TOOL}}]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    folder = reported(
        "benchmark=jsonl",
        f"benchmark.path={path}",
        "benchmark.max_new_tokens=2",
        f"model.path={tiny_folder}",
        "model.shape=null",
        "method=[full,streaming_llm,pooling_merge]",
        "method.streaming_llm.sinks=0",
        "budget=[30]",
        f"output_dir={tmp_path / 'runs'}",
    )
    shares = load(folder).set_index("method")["spans_kept"]
    assert shares["full"] == {"system": 1.0, "tool": 1.0}
    assert shares["streaming_llm"] == {"system": 0.0, "tool": 1.0}
    assert shares["pooling_merge"] is None
    table = (folder / "table.md").read_text(encoding="utf-8")
    assert "|  | system | tool |" in table and "| StreamingLLM 30 | 0.000 | 1.000 |" in table
    assert "share of the tokens of marked spans" in table
