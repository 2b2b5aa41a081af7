"""kvpress's needle in a haystack: what is hidden, how it is tokenised, and its score."""

import json

import pytest
import torch

from kvbench.evaluation.prompts import tokenise
from tests.support.niah import short

# No line ends before the question, and one token would hold the end of the wrapper and its beginning.
WRAPPED = {"prompt": "A story: <b> {context} </b> Ques{question}", "needle": "Hay is dry.", "question": "tion: how?"}


@pytest.fixture
def grid(tmp_path):
    path = tmp_path / "needle.json"
    path.write_text(json.dumps(WRAPPED | {"answer_prefix": "Hay is"}))
    return short("niah_kvpress", f"needle_file={path}")


def test_the_wrapper_belongs_to_the_context_and_the_question_alone_is_hidden(grid):
    assert grid.fill("T") == ("A story: <b> T </b> Question: how?", "tion: how?")


def test_context_and_question_are_tokenised_apart(grid, embedded):
    """As in kvpress's pipeline: the rendered text up to the question, and the question with the rest behind it."""
    sample = grid.samples(embedded.tokenizer)[0]
    prompt = tokenise(embedded, sample, "hidden")
    head, _, tail = embedded.render(sample.prompt, True, sample.prefix).partition(WRAPPED["question"])
    assert prompt.context.tolist() == embedded.plain_tokens(head)
    assert prompt.question.tolist() == embedded.plain_tokens(WRAPPED["question"] + tail)
    together = embedded.tokenise(embedded.render(sample.prompt, True, sample.prefix), True)["input_ids"]
    assert together != prompt.context.tolist() + prompt.question.tolist()
    assert torch.equal(tokenise(embedded, sample, "visible").context, torch.cat([prompt.context, prompt.question]))


def test_the_score_is_kvpresss(grid, embedded):
    sample = grid.samples(embedded.tokenizer)[0]
    assert grid.score(sample, "hay is dry and dry.") == {"rouge1": pytest.approx(4 / 7)}
    assert grid.metrics == ("rouge1",)
