"""Prompts of every variant."""

import pytest

from kvbench.errors import UserError
from tests.support.niah import TESTERS, VARIANTS, benchmark, short


@pytest.mark.parametrize("name", VARIANTS)
def test_every_variants_prompts_hold_their_needles_once_and_end_with_their_question(embedded, name):
    grid = short(name)
    samples = grid.samples(embedded.tokenizer)
    assert len({sample.id for sample in samples}) == len(samples) >= 2
    for sample in samples:
        tokens = len(embedded.encode(sample.prompt, sample.chat))
        assert sample.meta["length"] - grid.buffer <= tokens <= sample.meta["length"]
        assert sample.meta["task"] == grid.name
        assert sample.prompt.endswith(sample.question)
        assert sample.question[0].isupper()
        context = sample.prompt.removesuffix(sample.question)
        assert context.endswith("\n")  # so that both sides tokenise as the whole does
        for answer in sample.answers:
            assert context.count(answer) == (2 if name == "passkey" else 1)
            assert answer not in sample.question
    assert grid.longest == 700 + grid.max_new_tokens


def test_pyramidkv_is_raw_text_that_a_line_end_stops_after_at_most_30_tokens(embedded):
    for sample in short("niah_pyramidkv").samples(embedded.tokenizer):
        assert (sample.chat, sample.stop_at_newline, sample.may_be_empty) == (False, True, True)
        assert (sample.max_new_tokens, sample.prefix) == (30, "")
        context = sample.prompt.partition("<book> ")[2].partition(" </book>")[0]
        assert len(embedded.tokenizer(context)["input_ids"]) == pytest.approx(sample.meta["length"] - 200, abs=2)
    for name in set(VARIANTS) - {*TESTERS[1:3], "niah_base"}:
        assert all(sample.chat and not sample.stop_at_newline for sample in short(name).samples(embedded.tokenizer))


def test_kvpress_and_passkey_begin_the_answer_for_the_model(embedded):
    assert short("niah_kvpress").samples(embedded.tokenizer)[0].prefix.endswith(" is")
    assert short("passkey").samples(embedded.tokenizer)[0].prefix == "The pass key is"


def test_what_is_hidden_is_the_line_of_the_question_and_all_after_it():
    grid = short("niah_kamradt", "prompt='A {context} b\nc {question} d\ne'", "question=Why?")
    assert grid.fill("{question}") == ("A {question} b\nc Why? d\ne", "c Why? d\ne")
    grid = short("niah_kamradt", "prompt='{context}{question}'", "question=Why?")
    assert grid.fill("T") == ("TWhy?", "Why?")


@pytest.mark.parametrize(
    "name, override, message",
    [
        (
            "niah",
            "lengths=1000 to 2000",
            "benchmark.lengths='1000 to 2000' must be a list of numbers, 'A to B by STEP'",
        ),
        ("niah", "depths=[0,120]", "item 2 of benchmark.depths=120 must be a number from 0 to 100"),
        ("niah", "lengths=[400,299]", "item 2 of benchmark.lengths=299 must be an integer of at least 300"),
        ("niah", "lengths=[512.5]", "item 1 of benchmark.lengths=512.5 must be an integer of at least 1"),
        ("niah", "haystack_dir=3", "benchmark.haystack_dir=3 must be a text or null"),
        (
            "niah",
            "needle=nomber",
            "unknown benchmark.needle 'nomber'. Did you mean 'number'? Allowed: number, sentence",
        ),
        ("niah_multi", "depths=[50]", "benchmark.depths has 1 depths: 2 to 9 are required"),
        ("niah_multi_at_once", "depths=0 to 100 in 12", "has 12 depths: 2 to"),
        ("niah_multi", "seeds=0", "benchmark.seeds=0 must be an integer of at least 1"),
        ("passkey", "noise=loud", "unknown benchmark.noise 'loud'"),
        ("passkey", "digits=0", "benchmark.digits=0 must be an integer from 1 to 1000"),
        ("passkey", "digits=5000", "benchmark.digits=5000 must be an integer from 1 to 1000"),
        ("niah_kvpress", "buffer=-1", "benchmark.buffer=-1 must be an integer of at least 0"),
        ("niah_kamradt", "needle=''", "niah_kamradt needs benchmark.needle and benchmark.question"),
        ("niah_kamradt", "prompt='{context}'", "benchmark.prompt must contain {context} and {question}"),
    ],
)
def test_a_wrong_configuration_is_told_in_one_line(name, override, message):
    with pytest.raises(UserError) as error:
        benchmark(name, override)
    assert message in str(error.value)


def test_a_needle_longer_than_its_context_is_told(embedded):
    grid = short("niah_kamradt", "lengths=[300]", f"needle='{'hay ' * 200}'")
    with pytest.raises(UserError, match="a context of 100 tokens has no room for needles of 20"):
        grid.samples(embedded.tokenizer)
