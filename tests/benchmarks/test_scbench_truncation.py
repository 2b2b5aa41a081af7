"""SCBench's long contexts: cut where the official code cuts them, with the chat template around them."""

from functools import partial

import pytest

from kvbench.errors import UserError
from kvbench.evaluation.prompts import tokenise
from kvbench.utils.chat_template import MARK
from tests.support import scbench as made


@pytest.fixture
def bench(tmp_path, monkeypatch):
    return partial(made.benchmark, tmp_path, monkeypatch)


@pytest.mark.parametrize("mode", ["shared", "turns_golden"])
def test_a_long_context_is_cut_inside_the_chat_template(bench, embedded, mode):
    """The official code counts the template's tokens, and halves the text that it has written."""
    long = [{**row, "context": " ".join(f"word{n}" for n in range(3000))} for row in made.rows()["kv"]]
    benchmark = bench(mode=mode, tasks=["kv"], rows={"kv": long}, max_length=4000)
    sample = next(sample for sample in benchmark.samples(embedded.tokenizer) if sample.id == "kv:0:1")
    user = f"Read this.\n\n{long[0]['context']}" + (f"\n\n{long[0]['multi_turns'][0]['input']}" * (mode != "shared"))
    head, _, end = embedded.render(MARK, chat=True).partition(MARK)
    ids = embedded.plain_tokens(head + user + end * (mode != "shared"))
    half = (4000 - 3 * 150 - 1000 * (mode == "shared")) // 2
    prompt = tokenise(embedded, sample, "hidden")
    read = prompt.context.tolist() + (prompt.question.tolist() if mode != "shared" else [])
    assert embedded.decode(read) == embedded.decode(ids[:half] + ids[-half:])
    assert sample.prompt.endswith(sample.question) and sample.prompt.startswith("Read this.\n\nword0 ")


def test_a_shared_context_and_its_question_are_tokenised_apart(bench, embedded):
    assert {sample.question_apart for sample in bench(mode="shared", tasks=["kv"]).samples(embedded.tokenizer)} == {
        True
    }
    assert {
        sample.question_apart for sample in bench(mode="turns_golden", tasks=["kv"]).samples(embedded.tokenizer)
    } == {False}


def test_the_template_must_fit(bench, embedded):
    long = [{**row, "context": "word " * 3000} for row in made.rows()["vt"]]
    with pytest.raises(UserError, match=r"benchmark.max_length=1120 leaves no room beside the model's chat template"):
        bench(mode="shared", tasks=["vt"], rows={"vt": long}, max_length=1120).samples(embedded.tokenizer)
