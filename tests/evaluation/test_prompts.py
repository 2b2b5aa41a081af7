"""`question=visible|hidden`, how an answer is begun and what ends it."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from kvbench.benchmarks import Sample
from kvbench.benchmarks.base import Turn
from kvbench.errors import UserError
from kvbench.evaluation import prefill_passes
from kvbench.evaluation.answer import stop_rule
from kvbench.evaluation.decode import batched, generate, read
from kvbench.evaluation.prompts import later_turns, tokenise
from kvbench.methods import FullKV
from kvbench.models import LoadedModel
from kvbench.prefill import FullPrefill, Needs, prefill
from kvbench.runner import run as main
from kvbench.runner.shards import first_of_each_task
from kvbench.utils.chat_template import MARKS, mark_beside
from tests.support.config import method
from tests.support.every_method import model, shared_pass
from tests.support.given import QUESTION, SETTINGS, TEXT, made, sample
from tests.support.representatives import CACHES, every_third
from tests.support.runs import compose
from tests.support.tiny import prompt, tiny_model


@pytest.mark.parametrize("chat", [True, False])
@pytest.mark.parametrize("prefix", ["", "The number is"])
def test_hidden_and_visible_are_the_same_tokens_parted_before_the_question(embedded, chat, prefix):
    asked = sample(chat=chat, prefix=prefix)
    visible, hidden = (tokenise(embedded, asked, question) for question in ("visible", "hidden"))
    assert len(visible.question) == 0
    assert torch.equal(visible.context, torch.cat([hidden.context, hidden.question]))
    decode = embedded.tokenizer.decode
    assert decode(hidden.context).endswith(TEXT)
    assert decode(hidden.question).startswith(QUESTION)
    assert decode(hidden.question).endswith(("assistant\n" if chat else QUESTION) + prefix)


PDF = "\ue000 Ferries. \ue001 Bread. "  # bullets as PDF files have them


def test_a_text_with_characters_for_private_use_is_compressed_up_to_its_question(embedded):
    asked = Sample("a", PDF + TEXT + QUESTION, ("7391426",), 12, question=QUESTION)
    hidden = tokenise(embedded, asked, "hidden")
    assert embedded.decode(hidden.context.tolist()).endswith(PDF + TEXT)
    assert embedded.decode(hidden.question.tolist()).startswith(QUESTION)
    chat = replace(asked, history=(("user", PDF), ("assistant", PDF)))
    assert embedded.decode(tokenise(embedded, chat, "hidden").context.tolist()).endswith(PDF + TEXT)


def test_a_later_turn_after_a_text_with_characters_for_private_use_is_its_own_message_alone(embedded):
    turns = (Turn("And of Rome?", answer="7391426"),)
    of_pdf, of_text = (replace(sample(), prompt=text + QUESTION, turns=turns) for text in (PDF + TEXT, TEXT))
    (after_pdf,), (after_text,) = (later_turns(embedded, asked) for asked in (of_pdf, of_text))
    assert after_pdf.tolist() == after_text.tolist()


def test_a_text_with_every_character_for_private_use_has_no_place_for_a_mark():
    with pytest.raises(UserError, match="a prompt has all of Unicode's characters for private use"):
        mark_beside("".join(map(chr, MARKS)))


def test_a_token_that_holds_a_character_of_the_question_is_not_compressed(embedded):
    asked = Sample("a", "The answer is remembered", ("x",), 4, question="bered", chat=False)
    hidden = tokenise(embedded, asked, "hidden")
    assert embedded.tokenizer.decode(hidden.context) == "The answer is"


def test_a_template_that_trims_the_prompt_still_parts_at_the_question(embedded):
    tokenizer = embedded.tokenizer
    changed = LoadedModel(embedded.spec, embedded.model, tokenizer, embedded.source)
    template = "{% for m in messages %}<user>{{ m['content'] | trim }}</user>{% endfor %}<answer>"
    original, tokenizer.chat_template = tokenizer.chat_template, template
    try:
        hidden = tokenise(changed, sample(question=QUESTION + "\nAnswer:\n\n"), "hidden")
    finally:
        tokenizer.chat_template = original
    assert tokenizer.decode(hidden.context) == "<user>" + TEXT
    assert tokenizer.decode(hidden.question) == QUESTION + "\nAnswer:</user><answer>"


@pytest.mark.parametrize(
    "asked, message",
    [
        (Sample("a", TEXT, ("x",), 4), "use question=visible"),
        (Sample("a", TEXT, ("x",), 4, question=TEXT), "there is no context before the question"),
    ],
)
def test_a_sample_without_context_or_question_cannot_be_hidden(embedded, asked, message):
    with pytest.raises(UserError, match=message):
        tokenise(embedded, asked, "hidden")


@pytest.mark.parametrize("question", ["visible", "hidden"])
def test_a_token_beyond_the_models_embeddings_is_one_line(embedded, question):
    """It was an IndexError of torch: a folder may hold another model's tokenizer."""
    small = replace(embedded, model=tiny_model())
    with pytest.raises(
        UserError, match=r"sample 'a' has the token \d+ \('.*'\), and smollm2-135m has embeddings for 97: its"
    ):
        tokenise(small, sample(), question)
    assert len(tokenise(embedded, sample(), question).context)


def test_a_prompt_must_end_with_its_question():
    with pytest.raises(ValueError, match="does not end with its question"):
        Sample("a", "text", ("x",), 4, question="why")


ASKED = [sample("one"), sample("two", "\n\nWhen does the ferry leave?"), sample("three", "\n\nWho bakes?")]


def comparable(record: dict) -> dict:
    return {k: v for k, v in record.items() if not k.endswith("seconds") and k != "peak_cache_bytes"}


@pytest.mark.heavy
def test_questions_of_one_context_share_its_prefill_and_its_compression(tiny, tmp_path, monkeypatch):
    passed, compressed = [], []

    class Counted(prefill_passes.SharedPass):
        def __init__(self, *args):
            passed.append(args)
            super().__init__(*args)

        def compress(self, method, budget):
            compressed.append(method)
            return super().compress(method, budget)

    monkeypatch.setattr("kvbench.evaluation.prefill_passes.SharedPass", Counted)
    other = replace(sample("far"), prompt="Another text. " + TEXT + QUESTION)
    together = made(tmp_path / "all", tiny, [ASKED[0], other, *ASKED[1:]])
    assert (len(passed), len(compressed)) == (2, 6)
    assert len(together) == 12
    assert len({tuple(record["tokens"]) for record in together.values()}) > 4  # questions and settings matter
    for alone in ASKED:  # and none sees what another left in the cache
        for key, record in made(tmp_path / alone.id, tiny, [alone]).items():
            assert comparable(record) == comparable(together[key])


def test_a_hidden_question_is_counted_neither_as_context_nor_as_memory(tiny, tmp_path):
    hidden = made(tmp_path, tiny, ASKED)
    whole = made(tmp_path / "visible", tiny, ASKED, "visible")
    for key, record in hidden.items():
        assert record["question"] == "hidden" and whole[key]["question"] == "visible"
        assert record["prompt_tokens"] + record["question_tokens"] == whole[key]["prompt_tokens"]
        assert record["full_bytes"] < whole[key]["full_bytes"]
        assert record["full_cache_tokens"] == 0
    assert {hidden[name, "full"]["r_bytes"] for name in ("one", "two", "three")} == {1}
    # FullKV loses nothing, so the protocol makes no difference to it
    assert all(hidden[s.id, "full"]["tokens"] == whole[s.id, "full"]["tokens"] for s in ASKED)


@pytest.mark.heavy
def test_the_embedded_model_answers_a_hidden_question(embedded, tmp_path):
    hidden = made(tmp_path, embedded, ASKED[:1], settings=SETTINGS[:1])
    assert hidden["one", "full"]["scores"] == {"exact": 1}


def test_a_resumed_context_asks_only_what_is_missing(tiny, tmp_path):
    made(tmp_path, tiny, ASKED[:1])
    rest = made(tmp_path, tiny, ASKED)
    assert {name for name, _ in rest} == {"two", "three"}


def test_streamed_memory_and_hidden_questions_go_together(tiny, tmp_path):
    shared = made(tmp_path / "shared", tiny, ASKED, settings=SETTINGS[1:2])
    streamed = made(tmp_path / "stream", tiny, ASKED, settings=SETTINGS[1:2], memory="stream")
    for key, record in streamed.items():
        assert record["tokens"] == shared[key]["tokens"]
        assert record["r_bytes"] == shared[key]["r_bytes"]


@pytest.mark.heavy
@pytest.mark.parametrize("name", every_third(CACHES))
def test_reading_a_block_is_reading_its_tokens_one_by_one(name):
    """Every method goes on after a block as after single tokens; the plain model agrees for FullKV."""
    chosen, block = method(name), prompt(9, seed=1)
    state = shared_pass(60, FullPrefill()).state
    caches, single = (chosen.compress(state, max(30, chosen.minimum_budget)) for _ in range(2))
    (logits,) = read(model(), batched([caches]), block)
    step_by_step = batched([single])
    for token in block:
        (expected,) = read(model(), step_by_step, token[None])
    torch.testing.assert_close(logits, expected, atol=5e-3, rtol=1e-3)
    assert [cache.nbytes >= 0 and cache.get_seq_length() for cache in caches] == [69] * 4


def test_full_cache_reads_a_question_as_the_model_does():
    model, ids = tiny_model(), prompt(70)
    state = prefill(model, ids[:50], Needs())
    (logits,) = read(model, batched([FullKV().compress(state, 50)]), ids[50:])
    torch.testing.assert_close(logits, prefill(model, ids, Needs()).logits, atol=1e-4, rtol=1e-4)


def test_a_line_end_stops_but_never_before_one_token():
    model, ids = tiny_model(), prompt(40)
    state = prefill(model, ids, Needs())
    free = generate(model, FullKV().compress(state, 40), state.logits, 20, frozenset()).tokens
    stop = frozenset({free[0], free[5]})
    assert generate(model, FullKV().compress(state, 40), state.logits, 20, stop).tokens == []
    forced = generate(model, FullKV().compress(state, 40), state.logits, 20, stop, at_least_one=True).tokens
    assert forced[0] == state.logits.argsort(descending=True).tolist()[1]
    assert not stop & set(forced)


@pytest.mark.heavy
def test_stopping_at_a_newline_ends_the_text_there(embedded, tmp_path):
    story = Sample("s", "Name three fruits as a numbered list.", ("x",), 60)
    free = made(tmp_path / "free", embedded, [story], "visible", SETTINGS[:1])["s", "full"]["prediction"]
    line = replace(story, stop_at_newline=True)
    short = made(tmp_path / "line", embedded, [line], "visible", SETTINGS[:1])["s", "full"]["prediction"]
    assert "\n" in free and short == free.split("\n")[0]


@pytest.mark.heavy
def test_a_single_stop_is_the_tokenizers_own_and_leaves_at_least_one_token(embedded, tmp_path):
    loaded = LoadedModel(embedded.spec, embedded.model, embedded.tokenizer, embedded.source)
    loaded.stop_tokens = frozenset({loaded.tokenizer.eos_token_id})  # so that nothing else ends the free answer
    story = Sample("s", "Name three fruits as a numbered list.", ("x",), 20)
    free = made(tmp_path / "free", loaded, [story], "visible", SETTINGS[:1])["s", "full"]["tokens"]
    loaded.stop_tokens = frozenset({loaded.tokenizer.eos_token_id, free[5]})  # of a model with two, such as Llama-3
    both = made(tmp_path / "both", loaded, [story], "visible", SETTINGS[:1])["s", "full"]["tokens"]
    assert both == free[: free.index(free[5])]
    legacy = replace(story, single_stop=True)
    assert made(tmp_path / "one", loaded, [legacy], "visible", SETTINGS[:1])["s", "full"]["tokens"] == free
    assert stop_rule(loaded, legacy) == (frozenset({loaded.tokenizer.eos_token_id}), True)
    assert stop_rule(loaded, story) == (loaded.stop_tokens, False)
    assert stop_rule(loaded, replace(story, stop_at_newline=True)) == (loaded.stop_tokens | {loaded.newline}, True)


def test_limit_counts_within_each_task():
    samples = [Sample(f"{task}{i}", "p", ("a",), 1, meta={"task": task}) for task in "ab" for i in range(3)]
    assert [s.id for s in first_of_each_task(samples, 2)] == ["a0", "a1", "b0", "b1"]
    assert first_of_each_task(samples, None) == samples
    plain = [Sample(str(i), "p", ("a",), 1) for i in range(3)]
    assert [s.id for s in first_of_each_task(plain, 2)] == ["0", "1"]


def test_the_command_refuses_another_protocol(tmp_path):
    with pytest.raises(UserError, match=r"question.*visible"):
        main.run(compose("question=late", f"output_dir={Path(tmp_path)}"))
