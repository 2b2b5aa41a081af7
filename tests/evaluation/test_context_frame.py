"""The frame of a context in a prompt, and one second pass for every ratio and hidden question of it."""

import json
from dataclasses import replace

import pytest
import torch

from kvbench.errors import UserError
from kvbench.evaluation import prefill_passes
from kvbench.evaluation.context_frame import context_frame
from kvbench.evaluation.prefill_passes import SharedPass
from kvbench.evaluation.prompts import tokenise
from kvbench.evaluation.settings import Setting
from kvbench.methods import Eviction, FullKV, KVzip
from kvbench.models import LoadedModel
from kvbench.prefill import FullPrefill
from kvbench.runner.request import check_memory
from tests.support.given import QUESTION, TEXT, made, sample
from tests.support.tiny import prompt, tiny_model


@pytest.mark.parametrize("begin", ["", "The number is"])
@pytest.mark.parametrize("question", ["visible", "hidden"])
def test_the_context_is_what_lies_between_the_parts_of_the_chat_template(embedded, question, begin):
    read = tokenise(embedded, sample(prefix=begin), question)
    frame, decode = context_frame(embedded, read), embedded.tokenizer.decode
    assert decode(read.context[: frame.prefix]).endswith("<|im_start|>user\n")
    context = decode(read.context[frame.prefix : frame.end])
    assert context == (TEXT + QUESTION if question == "visible" else TEXT)
    assert decode(list(frame.suffix)) == "<|im_end|>\n<|im_start|>assistant\n"
    assert decode(frame.request("\n\nAgain.")) == "\n\nAgain."
    after = decode(read.context[frame.end :])
    assert after == ("" if question == "hidden" else "<|im_end|>\n<|im_start|>assistant\n" + begin)


def test_a_message_with_a_character_for_private_use_does_not_end_the_template(embedded):
    asked = sample(history=(("user", "\ue000 Ferries."), ("assistant", "Yes.")))
    frame, decode = context_frame(embedded, tokenise(embedded, asked, "hidden")), embedded.tokenizer.decode
    assert decode(list(frame.suffix)) == "<|im_end|>\n<|im_start|>assistant\n"


def test_raw_text_is_all_context_and_an_answer_begins_on_a_line_of_its_own(embedded):
    read = tokenise(embedded, sample(chat=False), "visible")
    frame = context_frame(embedded, read)
    assert (frame.prefix, frame.end) == (0, len(read.context))
    assert embedded.tokenizer.decode(list(frame.suffix)) == "\n"


def test_a_template_that_trims_the_prompt_still_ends_where_the_context_does(embedded):
    tokenizer = embedded.tokenizer
    changed = LoadedModel(embedded.spec, embedded.model, tokenizer, embedded.source)
    template = "{% for m in messages %}<user>{{ m['content'] | trim }}</user>{% endfor %}<answer>"
    original, tokenizer.chat_template = tokenizer.chat_template, template
    try:
        read = tokenise(changed, sample(question=QUESTION + "\n\n"), "visible")
        frame = context_frame(changed, read)
    finally:
        tokenizer.chat_template = original
    assert tokenizer.decode(read.context[frame.prefix : frame.end]) == TEXT + QUESTION


KVZIP = Eviction(scoring=KVzip(chunk=16))
KVZIPS = [Setting("kvzip", KVZIP, '{"z": 1}', ratio=ratio) for ratio in (0.4, 0.7, 1.0)]
ASKED = [sample("one"), sample("two", "\n\nWhen does the ferry leave?"), sample("three", "\n\nWho bakes?")]


def test_one_second_pass_serves_every_ratio_and_hidden_question_of_a_context(tiny, tmp_path, monkeypatch):
    reread = []

    def counted(model, ids, state, how, frame):
        reread.append((ids.tolist(), how))
        return original(model, ids, state, how, frame)

    original = prefill_passes.reconstruct
    monkeypatch.setattr(prefill_passes, "reconstruct", counted)
    full = Setting("full", FullKV(), '{"f": 1}')
    records = made(tmp_path, tiny, ASKED, settings=[full, *KVZIPS])
    assert len(records) == 12 and len(reread) == 1
    seconds = {setting: record.get("second_pass_seconds") for (_, setting), record in records.items()}
    assert seconds.pop("full") is None and len({*seconds.values()}) == 1 and seconds["kvzip 1"] > 0
    assert len({tuple(record["prompt_tokens"] for record in records.values())}) == 1
    for name in ("one", "two", "three"):
        assert records[name, "kvzip 1"]["tokens"] == records[name, "full"]["tokens"]
        assert records[name, "kvzip 1"]["r"] == 1
        assert records[name, "kvzip 0.7"]["r"] <= 0.7
    visible = made(tmp_path / "visible", tiny, ASKED, "visible", settings=KVZIPS)
    assert len(visible) == 9 and len(reread) == 4


def test_compression_and_peak_count_the_second_pass_for_those_who_read_it():
    model, ids = tiny_model(), prompt(60)
    source = SharedPass(model, ids, FullPrefill(), KVZIP.needs)
    (second,) = source.second.values()
    zipped, full = source.compress(KVZIP, 20), source.compress(FullKV(), 60)
    assert zipped.compress_seconds >= zipped.second_pass_seconds == second.seconds > 0 == full.second_pass_seconds
    token = 2 * 2 * 8 * 4
    assert full.peak_bytes == full.full_bytes == 3 * 60 * token
    assert second.peak_bytes == (3 * 60 + 60 + 16 + 8) * token <= zipped.peak_bytes


def test_a_stream_of_layers_is_refused_in_one_line():
    with pytest.raises(UserError, match="memory=stream cannot run 'kvzip': its second pass reads the caches") as error:
        check_memory("stream", KVZIPS[:1])
    assert "\n" not in str(error.value)


def test_requests_of_a_file_change_the_pass(tmp_path, tiny):
    file = tmp_path / "requests.json"
    file.write_text(json.dumps({"first": "\n\nAgain: ", "others": "\n\nGo on: "}))
    own, other = (Eviction(scoring=KVzip(chunk=16, requests_file=path)) for path in (None, str(file)))
    assert own.needs != other.needs
    read = tokenise(tiny, sample(), "visible")
    frame = context_frame(tiny, read)
    source = SharedPass(tiny.model, read.context, FullPrefill(), own.needs | other.needs, lambda: frame)
    scores = [x.scores for x in source.state.layers[0].reconstruction.values()]
    assert len(scores) == 2 and not torch.equal(*scores)


def test_a_tokenizer_that_does_not_know_its_characters_is_refused(embedded):
    class Slow:
        is_fast = False

    changed = replace(embedded, tokenizer=Slow())
    with pytest.raises(UserError, match="a second pass over the context needs a fast tokenizer"):
        context_frame(changed, tokenise(embedded, sample(), "visible"))
