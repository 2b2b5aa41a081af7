"""Conversations of several turns: what a turn reads, what is compressed, and what stays in the caches."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from transformers import AutoModelForCausalLM

from kvbench.benchmarks import Sample, Turn
from kvbench.benchmarks.base import data_hash
from kvbench.errors import UserError
from kvbench.evaluation import evaluate as evaluation
from kvbench.evaluation import turns
from kvbench.evaluation.check_samples import check_turns
from kvbench.evaluation.decode import batched, decode, generate, read
from kvbench.evaluation.prefill_passes import SharedPass
from kvbench.evaluation.prompts import Prompt, later_turns, together, tokenise
from kvbench.evaluation.record import Row, Run
from kvbench.evaluation.settings import Setting
from kvbench.evaluation.turns import conversations, converse
from kvbench.methods import Eviction, FullKV
from kvbench.methods.eviction.decode_compression import DecodeCompression
from kvbench.prefill import FullPrefill
from kvbench.records.samples import row_of
from kvbench.records.store import Store
from kvbench.runner.shards import Shard
from tests.support.config import method
from tests.support.given import Given, made
from tests.support.sliding import sliding_model
from tests.support.tiny import prompt

TEXT = "The harbour lies in the north. The market opens at eight, the ferry leaves at nine and returns at noon. "
FIRST = "When does the ferry leave?"
LATER = (Turn("Where does the harbour lie?", "at nine", 6), Turn("When does the market open?", "in the north", 5))
LIMITS = (6, 5, 7)
SETTINGS = [
    Setting("full", method("full"), '{"f": 1}'),
    Setting("snapkv", method("snapkv"), '{"s": 1}', ratio=0.5),
    Setting("h2o", method("h2o"), '{"h": 1}', ratio=0.5),
]


def turn(place: int, **changes) -> Sample:
    sample = Sample(
        f"c:{place + 1}",
        TEXT + FIRST,
        ("x",),
        LIMITS[place],
        question=FIRST,
        turns=LATER[:place],
        context_id="c",
        meta={"turn": place + 1},
    )
    return replace(sample, **changes)


def conversation(**changes) -> list[Sample]:
    return [turn(place, **changes) for place in range(3)]


def first_tokens(loaded) -> torch.Tensor:
    return tokenise(loaded, turn(0), "visible").context


def greedy(loaded, ids: torch.Tensor, limit: int) -> list[int]:
    """The model's greedy answer without any cache, in float32."""
    model, tokens = AutoModelForCausalLM.from_pretrained(loaded.source, attn_implementation="sdpa"), []
    while len(tokens) < limit:
        with torch.inference_mode():
            row = torch.cat([ids, torch.tensor(tokens, dtype=ids.dtype)])
            token = model(input_ids=row[None], use_cache=False).logits[0, -1].argmax().item()
        if token in loaded.stop_tokens:
            break
        tokens.append(token)
    return tokens


# --- what a turn reads


def test_a_later_turn_reads_the_earlier_ones_as_the_chat_template_writes_them(embedded):
    prompt = tokenise(embedded, turn(2), "visible")
    assert torch.equal(prompt.context, first_tokens(embedded))
    history = [("user", TEXT + FIRST), ("assistant", "at nine"), ("user", LATER[0].question)]
    history += [("assistant", "in the north")]
    whole = embedded.render(LATER[1].question, chat=True, history=history)
    assert embedded.tokenizer.decode(torch.cat([prompt.context, prompt.question])) == whole


def test_without_a_template_an_empty_line_parts_answer_and_message(embedded):
    prompt = tokenise(embedded, turn(1, chat=False), "visible")
    assert embedded.tokenizer.decode(prompt.question) == "at nine\n\nWhere does the harbour lie?"


def test_with_a_hidden_question_the_first_one_is_read_before_the_turns(embedded):
    visible, hidden = (tokenise(embedded, turn(1), question) for question in ("visible", "hidden"))
    assert len(hidden.context) < len(visible.context)
    whole = [torch.cat([prompt.context, prompt.question]) for prompt in (visible, hidden)]
    assert torch.equal(*whole)


def test_a_template_that_leaves_out_answers_is_refused(embedded, monkeypatch):
    monkeypatch.setattr(embedded.tokenizer, "chat_template", "{{ messages[-1]['content'] }}")
    with pytest.raises(UserError, match="leaves out the answers of earlier turns"):
        later_turns(embedded, turn(1))


def test_turns_and_answers_count_towards_the_models_limit(embedded):
    spec = replace(embedded.spec, max_length=len(first_tokens(embedded)) + sum(LIMITS))
    short = replace(embedded, spec=spec)
    tokenise(short, turn(0), "visible")
    with pytest.raises(UserError, match="takes at most"):
        tokenise(short, turn(1), "visible")
    with pytest.raises(UserError, match="with answers of 18"):
        tokenise(short, turn(2, own_answers=True), "visible")


# --- golden answers


def test_a_turn_with_expected_answers_goes_on_from_the_compressed_first_prompt(tmp_path, tiny):
    records = made(tmp_path, tiny, conversation(), "visible", SETTINGS)
    assert len(records) == 9
    for setting in SETTINGS:
        for sample in conversation():
            prompt = tokenise(tiny, sample, "visible")
            source = SharedPass(tiny.model, first_tokens(tiny), FullPrefill(), setting.method.needs)
            compressed = source.compress(setting.method, setting.budget_at(len(prompt.context), 3))
            logits = compressed.logits
            if sample.turns:
                logits = read(tiny.model, batched([compressed.caches]), prompt.question)[0]
            stop = tiny.stop_tokens
            expected = generate(tiny.model, compressed.caches, logits, sample.max_new_tokens, stop).tokens
            record = records[sample.id, setting.label]
            assert record["tokens"] == expected
            assert record["turn"] == len(sample.turns) + 1 and record["context_id"] == "c"
            assert record["question_tokens"] == len(prompt.question)
            assert record["full_cache_tokens"] == (0 if sample.turns else 1)


def test_every_turn_with_expected_answers_has_a_distance(tmp_path, tiny):
    run = Run("run", "r", tiny, Given(samples := conversation()), SETTINGS[:2], distance=True)
    with Store(tmp_path) as store:
        found = {
            (record["sample"], record["setting"]): record["distance"]
            for record in evaluation.evaluate(run, samples, store)
        }
    assert all(found[sample.id, "full"]["kl"] == 0 < found[sample.id, "snapkv 0.5"]["kl"] for sample in samples)


@pytest.mark.parametrize("question", ["visible", "hidden"])
def test_all_turns_of_a_conversation_share_one_prefill(tmp_path, tiny, monkeypatch, question):
    passes = []

    def counted(*args):
        passes.append(args)
        return prefill_pass(*args)

    prefill_pass = evaluation.prefill_pass
    monkeypatch.setattr(evaluation, "prefill_pass", counted)
    made(tmp_path, tiny, conversation(), question, SETTINGS[:2])
    assert len(passes) == 1


def test_a_conversation_is_one_shards():
    others = [replace(sample, id=f"other {sample.id}", context_id="other") for sample in conversation()]
    mixed = [sample for pair in zip(conversation(), others, strict=True) for sample in pair]
    assert [len(group) for group in together(mixed, "visible")] == [3, 3]
    parts = [Shard(i, 2).samples(mixed, "visible") for i in range(2)]
    assert [{sample.context_id for sample in part} for part in parts] == [{"c"}, {"other"}]


# --- the model's own answers


@pytest.mark.parametrize("question", ["visible", "hidden"])
def test_own_answers_stay_and_the_next_turn_goes_on_from_them(tmp_path, tiny, question):
    own = conversation(own_answers=True)
    records = made(tmp_path, tiny, own, question, SETTINGS[:1])
    ids = first_tokens(tiny)
    for sample, after in zip(own, [*later_turns(tiny, own[2]), None], strict=True):
        expected = greedy(tiny, ids, sample.max_new_tokens)
        record = records[sample.id, "full"]
        assert record["tokens"] == expected and record["close_call"] is None
        assert record["prompt_tokens"] + record["question_tokens"] == len(ids)
        if after is not None:
            ids = torch.cat([ids, torch.tensor(expected), after])


def test_compressed_own_answers_go_on_in_one_cache(tmp_path, tiny):
    """The second turn's cache is the first one's after its answer, with the answer's last token and the message."""
    own, setting = conversation(own_answers=True), SETTINGS[1]
    records = made(tmp_path, tiny, own, "visible", [setting])
    context = first_tokens(tiny)
    source = SharedPass(tiny.model, context, FullPrefill(), setting.method.needs)
    compressed = source.compress(setting.method, setting.budget_at(len(context), 3))
    cache, logits = batched([compressed.caches]), compressed.logits
    for sample, after in zip(own, [*later_turns(tiny, own[2]), None], strict=True):
        tokens = []
        for _ in range(sample.max_new_tokens):
            token = logits.argmax().item()
            if token in tiny.stop_tokens:
                break
            tokens.append(token)
            logits = read(tiny.model, cache, torch.tensor([token]))[0]
        assert records[sample.id, "snapkv 0.5"]["tokens"] == tokens
        if after is not None:
            logits = read(tiny.model, cache, after)[0]


@pytest.mark.parametrize("family", ["gemma3", "gemma2", "qwen2"])
def test_conversations_go_on_where_layers_have_windows(family):
    """A message longer than the window, behind own answers: the tokens of the model without any cache."""
    model, plain = sliding_model(family), sliding_model(family, "eager")
    messages = (prompt(9, seed=1), prompt(25, seed=2))
    sample = Sample("c", "", (), 6, turns=(Turn("", "", 8), Turn("", "", 7)), own_answers=True)
    turns = [Prompt(replace(sample, turns=sample.turns[:k]), prompt(60), prompt(3), messages[:k]) for k in (2, 1, 0)]
    compressed = SharedPass(model, prompt(60), FullPrefill(), FullKV.needs).compress(FullKV(), 60)
    loaded = SimpleNamespace(model=model, stop_tokens=frozenset(), newline=None)
    run = SimpleNamespace(decode_engine="auto", loaded=loaded)
    row = Row(SETTINGS[0], turns[0], compressed, compressed.caches)
    ids = torch.cat([prompt(60), prompt(3)])
    for (asked, answer), message in zip(converse(run, row, turns), [*messages, None], strict=True):
        assert torch.equal(torch.cat([asked.context, asked.question]), ids)
        expected = []
        for _ in range(len(answer.generation.tokens)):
            with torch.inference_mode():
                whole = torch.cat([ids, torch.tensor(expected, dtype=ids.dtype)])
                expected.append(plain(input_ids=whole[None], use_cache=False).logits[0, -1].argmax().item())
        assert answer.generation.tokens == expected
        if message is not None:
            ids = torch.cat([ids, torch.tensor(expected), message])


def test_a_later_turn_made_alone_is_the_same(tmp_path, tiny):
    own = conversation(own_answers=True)
    whole = made(tmp_path / "whole", tiny, own, "visible", SETTINGS)
    alone = made(tmp_path / "alone", tiny, own[2:], "visible", SETTINGS)
    for key, record in alone.items():
        for name in ("tokens", "question_tokens", "decode_tokens", "r_mean", "stored_bytes"):
            assert record[name] == whole[key][name], (key, name)


def test_after_logits_that_are_not_finite_no_later_turn_has_a_record(tmp_path, tiny, monkeypatch):
    def broken(model, cache, logits, *args, **options):
        (generation,) = decode(model, cache, logits, *args, **options)
        generation.not_finite = 2 if generation.decode_bytes.passes > LIMITS[0] else None
        return [generation]

    monkeypatch.setattr(turns, "decode", broken)
    own = conversation(own_answers=True)
    run = Run("run", "r", tiny, Given(own), SETTINGS[:1])
    with Store(tmp_path) as store:
        first, *others = evaluation.evaluate(run, own, store)
    assert first["sample"] == "c:1"
    assert [(other.sample, "NaN" in other.reason) for other in others] == [("c:2", True), ("c:3", True)]


def test_turns_are_of_the_conversation_that_goes_on_from_them(embedded):
    other = replace(turn(2, own_answers=True), id="d:3", turns=(replace(LATER[0], question="And now?"), LATER[1]))
    prompts = [tokenise(embedded, sample, "visible") for sample in [*conversation(own_answers=True), other]]
    found = [[prompt.sample.id for prompt in each] for each in conversations(prompts)]
    assert found == [["c:3", "c:2", "c:1"], ["d:3"]]


# --- what is not defined


def test_what_is_not_defined_for_turns_is_refused():
    golden, own = conversation(), conversation(own_answers=True)
    total = Eviction(decode_compression=DecodeCompression(every=4, of="total"))
    with pytest.raises(UserError, match="differs from turn to turn"):
        check_turns(golden, [Setting("snapkv", total, '{"s": 1}', ratio=0.5)], False)
    with pytest.raises(UserError, match="own answers differ between settings"):
        check_turns(own, SETTINGS, True)
    with pytest.raises(UserError, match="probes"):
        check_turns(own, [object()], False)
    check_turns(golden, SETTINGS, True)
    check_turns([replace(turn(0), context_id="")], [Setting("snapkv", total, '{"s": 1}', ratio=0.5)], True)


def test_an_answer_to_a_later_turn_has_no_prefix():
    with pytest.raises(ValueError, match="no prefix"):
        turn(1, prefix="It is")


# --- records and hashes


def test_the_row_of_a_later_turn_has_its_own_question():
    assert row_of(turn(0))["question"] == FIRST
    assert row_of(turn(2))["question"] == LATER[1].question


def test_the_hash_of_samples_without_turns_is_that_of_earlier_versions():
    plain = [Sample("a", "text why", ("é", "b"), 4, question="why", meta={"task": "t"}), Sample("b", "x", (), 1)]
    assert data_hash(plain) == "300b868996165a0a6d2a7b36f662a8838e82b83d40792024e0bc1aaa4d52dc82"
    assert data_hash([]) == "4f53cda18c2baa0c0354bb5f9a3ecbe5ed12ab4d8e11ba873c2f11161202b945"
    assert len({data_hash([turn(1)]), data_hash([turn(2)]), data_hash([turn(1, own_answers=True)])}) == 3
