"""A model's texts as tokens: special tokens once."""

import copy

import pytest
from tokenizers.processors import TemplateProcessing

from kvbench.benchmarks import Sample
from kvbench.evaluation.context_frame import context_frame
from kvbench.evaluation.prompts import tokenise
from kvbench.models import LoadedModel

BEGIN = "<|endoftext|>"


@pytest.fixture(scope="module")
def begun(embedded):
    """The embedded model with a tokenizer that begins raw texts, and has no chat template."""
    tokenizer = copy.deepcopy(embedded.tokenizer)
    token = tokenizer.convert_tokens_to_ids(BEGIN)
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single=f"{BEGIN} $A", special_tokens=[(BEGIN, token)]
    )
    tokenizer.chat_template = None
    return LoadedModel(embedded.spec, embedded.model, tokenizer, embedded.source)


@pytest.mark.parametrize("chat", [True, False])
def test_a_raw_text_begins_once_whether_it_has_the_token_or_not(begun, chat):
    ids = begun.encode("Once upon a time", chat).tolist()
    assert begun.tokenizer.convert_ids_to_tokens(ids[:2]) == [BEGIN, "Once"]
    assert begun.encode(f"{BEGIN}Once upon a time", chat).tolist() == ids
    inside = begun.encode(f"Once {BEGIN}", chat).tolist()
    assert inside[0] == inside[-1] == ids[0] and len(inside) > 2


def test_a_tokenizer_that_begins_no_text_reads_the_token_where_it_is_written(embedded):
    ids = embedded.encode(f"{BEGIN}Once", chat=False).tolist()
    assert embedded.tokenizer.convert_ids_to_tokens(ids) == [BEGIN, "Once"]


@pytest.mark.parametrize("apart", [False, True])
def test_both_texts_have_the_same_parts_and_spans(begun, apart):
    fields = {"chat": False, "question": " Who?", "question_apart": apart, "spans": (("needle", "upon a"),)}
    plain, own = (
        tokenise(begun, Sample("s", f"{begin}Once upon a time. Who?", ("x",), 4, **fields), "hidden")
        for begin in ("", BEGIN)
    )
    assert own.context.equal(plain.context) and own.question.equal(plain.question)
    assert own.spans == plain.spans == {"needle": (2, 4)}
    frames = [context_frame(begun, prompt) for prompt in (own, plain)]
    assert [(frame.prefix, frame.end) for frame in frames] == [(1, len(plain.context))] * 2
