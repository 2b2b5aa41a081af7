"""Samples of all 13 tasks, and what they are made from."""

import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvbench.benchmarks import Ruler
from kvbench.benchmarks.base import text_unit
from kvbench.benchmarks.ruler.essays import Essays
from kvbench.benchmarks.ruler.generate import generate
from kvbench.benchmarks.ruler.published_questions import SOURCES
from kvbench.benchmarks.ruler.tasks import GROUPS, TASKS
from kvbench.benchmarks.ruler.words import Pairs
from kvbench.errors import UserError
from tests.support.ruler_data import HOTPOTQA, SQUAD, counter, inputs, ruler


@pytest.fixture(autouse=True)
def cache(monkeypatch, embedded, tmp_path):
    """A cache of the test's own; `embedded` has found its model before."""
    monkeypatch.setenv("KVBENCH_CACHE", str(tmp_path / "cache"))


@pytest.mark.parametrize(
    ("name", "length"), [*((name, 1536) for name in TASKS), ("niah_multikey_1", 4096), ("vt", 4096), ("cwe", 4096)]
)
def test_samples_fit_their_length_and_hold_their_answers(name, length, embedded):
    tokens = counter(embedded.tokenizer)
    benchmark = ruler(lengths=[length], tasks=[name])
    samples = benchmark.samples(embedded.tokenizer)
    assert [sample.id for sample in samples] == [f"{name}-{length}-0", f"{name}-{length}-1"]
    for sample in samples:
        total = tokens(sample.prompt + sample.prefix) + sample.max_new_tokens
        assert length / 4 < total <= length
        assert sample.max_new_tokens == TASKS[name].max_new_tokens
        assert all(answer in sample.prompt for answer in sample.answers)
        assert sample.prefix.startswith(" ")
        context = sample.prompt.removesuffix(sample.question)
        assert context != sample.prompt and context.endswith("\n")
        assert tokens(sample.question) < 150
        assert sample.meta["task"] == name and sample.meta["length"] == length
        perfect = benchmark.score(sample, " ".join(sample.answers))
        assert perfect == {"score": 1.0} and benchmark.score(sample, "") == {"score": 0.0}


def test_questions_of_needles_ask_for_every_key(embedded):
    (sample,) = ruler(tasks=["niah_multiquery"], num_samples=1).samples(embedded.tokenizer)
    *keys, last = sample.question.removesuffix(" mentioned in the provided text?").rpartition(" for ")[2].split(", ")
    keys.append(last.removeprefix("and "))
    assert len(keys) == len(sample.answers) == 4
    for key, value in zip(keys, sample.answers, strict=True):
        assert f" for {key} is: {value}." in sample.prompt


def test_a_question_on_documents_repeats_the_instruction(embedded):
    (sample,) = ruler(lengths=[2048], tasks=["qa_1"], num_samples=1).samples(embedded.tokenizer)
    instruction, question = sample.question.split("\n\n")
    assert sample.prompt.startswith(instruction)
    assert question == "Question: In what country is Normandy located?"


def test_questions_on_one_paragraph_are_one_unit_of_intervals_at_all_lengths(embedded):
    samples = ruler(lengths=[1536, 2048], tasks=["qa_1", "qa_2", "vt"], num_samples=6).samples(embedded.tokenizer)
    units = {sample.id: sample.unit for sample in samples}
    gold = [paragraph["context"] for paragraph in json.loads(Path(SQUAD).read_text())["data"][0]["paragraphs"]]
    for length in (1536, 2048):
        squad = [text_unit(gold[0])] * 5 + [text_unit(gold[1])]  # five of the questions are on the first paragraph
        assert [units[f"qa_1-{length}-{i}"] for i in range(6)] == squad
        assert {units[f"vt-{length}-{i}"] for i in range(6)} == {""}
    assert [units[f"qa_2-1536-{i}"] for i in range(6)] == [units[f"qa_2-2048-{i}"] for i in range(6)]
    assert len({units[f"qa_2-1536-{i}"] for i in range(6)}) == 6


def test_a_needle_that_is_drawn_again_at_another_length_or_by_another_task_is_one_unit(embedded):
    """Each task and length begins with the same random numbers: counted as independent, intervals were too narrow."""
    tasks = ["niah_single_1", "niah_single_2", "niah_multivalue"]
    samples = ruler(lengths=[1024, 2048], tasks=tasks, num_samples=8).samples(embedded.tokenizer)
    units: dict[tuple[str, ...], set[str]] = {}
    for sample in samples:
        units.setdefault(sample.answers, set()).add(sample.unit)
    assert len(units) < len(samples) - 6  # most are drawn again
    assert all(len(of_needle) == 1 for of_needle in units.values())
    assert len(set.union(*units.values())) == len(units)


def test_frequent_words_are_in_their_text_more_often_than_others_or_the_length_is_refused():
    """With a tokenizer of bytes, samples of short lengths had none of the words that are their answers."""
    made = 0
    for length in range(400, 1400, 48):
        try:
            (row,) = generate("fwe", length, 1, inputs(), lambda text: len(text.encode()))
        except UserError as error:
            assert str(error).startswith(f"fwe does not fit into {length} tokens: ")
            continue
        made += 1
        text = row["input"].partition("coded words. ")[2].partition("\nQuestion")[0]
        counts = Counter(word for word in text.split() if word != "...")
        least = min(counts.pop(word, 0) for word in row["outputs"])
        assert least > max(counts.values(), default=0)
    assert made > 8


def test_a_length_can_count_the_chat_template(embedded):
    without, counted = (
        ruler(tasks=["vt", "niah_single_1"], count_chat_template=counts, num_samples=4) for counts in (False, True)
    )
    for benchmark, holds in ((without, False), (counted, True)):
        longest = max(
            len(embedded.encode(sample.prompt, sample.chat, sample.prefix)) + sample.max_new_tokens
            for sample in benchmark.samples(embedded.tokenizer)
        )
        assert (longest <= 1024) is holds
        assert longest <= benchmark.longest
    assert counted.longest == 1024


def test_answers_of_lengths_below_the_official_ones_keep_what_holds_the_answer(embedded, monkeypatch):
    monkeypatch.setattr("kvbench.benchmarks.ruler.fitting.REDRAWS", 2)
    questions = inputs().questions("hotpotqa", 12).questions
    for row, question in zip(generate("qa_2", 400, 3, inputs(), counter(embedded.tokenizer)), questions, strict=False):
        assert row["length"] <= 400
        assert row["input"].count("Document ") < len(question.documents)
        assert question.answers[0] in row["input"]


def test_a_length_that_no_haystack_fits_is_told(embedded, monkeypatch):
    monkeypatch.setattr("kvbench.benchmarks.ruler.fitting.REDRAWS", 2)
    for name in ("cwe", "vt"):
        with pytest.raises(UserError, match=f"{name} does not fit into 256 tokens: [0-9]+ tokens would do$") as error:
            ruler(lengths=[256], tasks=[name]).samples(embedded.tokenizer)
        enough = int(str(error.value).split()[-4])
        assert ruler(lengths=[enough], tasks=[name], num_samples=1).samples(embedded.tokenizer)


@given(st.sets(st.text("ab-", min_size=1, max_size=3)), st.sets(st.text("ab-", min_size=1, max_size=3)))
def test_pairs_are_the_sorted_list_of_all_pairs(adjectives, nouns):
    expected = sorted({f"{adjective}-{noun}" for adjective in adjectives for noun in nouns})
    assert list(Pairs(adjectives, nouns)) == expected
    assert len(Pairs(adjectives, nouns)) == len(expected)


def test_common_words_past_the_lists_of_wonderwords_come_from_english_words(tmp_path):
    file = tmp_path / "english_words.json"
    file.write_text(json.dumps({str(i): f"englishword{i}" for i in range(60_000)}))
    coarse = lambda text: len(text) // 50  # noqa: E731  so that many words fit
    (row,) = generate("cwe", 20_000, 1, inputs(english_words=str(file)), coarse)
    assert row["outputs"][0].startswith("englishword")
    assert 18_000 < row["length"] <= 20_000
    file.write_text(json.dumps({"1": "few"}))
    with pytest.raises(UserError, match="there are only 1"):
        next(generate("cwe", 20_000, 1, inputs(english_words=str(file)), coarse))
    with pytest.raises(UserError, match=r"is not RULER's english_words\.json"):
        file.write_text("[]")
        next(generate("cwe", 20_000, 1, inputs(english_words=str(file)), coarse))


def essay_folder(tmp_path):
    (tmp_path / "b.txt").write_text("Second essay. It ends\n\nhere.")
    (tmp_path / "a.txt").write_text("First essay,  by Dr. No.\n")
    return tmp_path


def test_essays_are_read_in_order_and_repeat(tmp_path):
    essays = Essays(str(essay_folder(tmp_path)), "simple", 42)
    assert essays.sentences(7) == ["First essay, by Dr.", "No.", "Second essay."]
    # the seam between the last essay and the first is one word in the official text too
    assert " ".join(essays.sentences(13)) == ("First essay, by Dr. No. Second essay. It ends here. First essay, by")
    assert essays.name == "essay"


def test_essays_come_from_rulers_own_file_too(tmp_path):
    folder = essay_folder(tmp_path)
    official = folder / "PaulGrahamEssays.json"
    official.write_text(json.dumps({"text": "From the file. "}))
    for source in (folder, official):
        assert Essays(str(source), "simple", 42).sentences(3) == ["From the file."]
    official.write_text("{}")
    with pytest.raises(UserError, match=r"is not RULER's PaulGrahamEssays\.json"):
        Essays(str(official), "simple", 42)


def test_without_essays_the_haystack_is_generated_and_says_so(embedded):
    (sample,) = ruler(tasks=["niah_single_2"], num_samples=1).samples(embedded.tokenizer)
    assert (sample.meta["haystack"], sample.meta["sentences"]) == ("generated", "simple")
    assert Essays(None, None, 42).sentences(500) != Essays(None, None, 43).sentences(500)


def test_the_official_split_is_that_of_nltk_where_its_data_is(tmp_path, monkeypatch):
    import nltk

    monkeypatch.setattr(nltk.data, "find", lambda name: name)
    monkeypatch.setattr(nltk, "sent_tokenize", lambda text: [f"<{text}>"])
    essays = Essays(str(essay_folder(tmp_path)), None, 42)
    assert essays.sentences(2) == ["<First essay,>"]
    assert essays.splitter == "nltk"


def test_missing_punkt_data_is_told_with_both_ways_out(tmp_path, monkeypatch):
    import nltk

    def missing(name):
        raise LookupError

    monkeypatch.setattr(nltk.data, "find", missing)
    with pytest.raises(UserError, match=r"nltk\.downloader punkt_tab, or benchmark\.sentences=simple.*niah_single_2"):
        ruler(tasks=["niah_single_2"], essays_dir=str(essay_folder(tmp_path)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tasks": ["qa_3"]}, "unknown task in benchmark.tasks 'qa_3'. Did you mean 'qa_2'"),
        ({"tasks": []}, r"benchmark.tasks=\[\] must be a name or a list of names"),
        ({"lengths": []}, r"benchmark.lengths=\[\] must be a list of numbers"),
        ({"lengths": None}, "benchmark.lengths=None must be a list of numbers"),
        ({"lengths": "long"}, "benchmark.lengths='long' must be a list of numbers"),
        ({"tasks": 3}, "benchmark.tasks=3 must be a name or a list of names"),
        ({"tasks": ["vt", 3]}, r"benchmark.tasks=\['vt', 3\] must be a name or a list of names"),
        ({"lengths": [100]}, "item 1 of benchmark.lengths=100 must be an integer of at least 256"),
        ({"num_samples": 0}, "benchmark.num_samples=0 must be an integer of at least 1"),
        ({"seed": 5 * 10**9}, "benchmark.seed=5000000000 must be an integer from 0 to 4294967295"),
        ({"sentences": "spacy"}, "unknown benchmark.sentences 'spacy'.*Allowed: nltk, null, simple"),
        ({"essays_dir": "/nowhere"}, "benchmark.essays_dir='/nowhere' is neither"),
        ({"squad": "/nowhere"}, r"benchmark.squad='/nowhere' is not a file \(needed by qa_1; benchmark.tasks="),
        ({"squad": HOTPOTQA}, "is not in the form of squad-dev-v2.0.json"),
        ({"hotpotqa": SQUAD}, "is not in the form of hotpot_dev_distractor_v1.json"),
        (
            {"num_samples": 13},
            "squad_normans.json holds 8 questions with an answer, fewer than benchmark.num_samples=13",
        ),
    ],
)
def test_mistakes_are_told_before_a_model_is_loaded(options, message):
    with pytest.raises(UserError, match=message):
        ruler(**options)


def test_one_length_is_a_list_of_one():
    assert ruler(lengths=2048).lengths == ruler(lengths=[2048, 2048]).lengths == [2048]


def test_groups_of_tasks_can_be_chosen():
    assert Ruler.tasks_of(["all"]) == list(TASKS)
    assert Ruler.tasks_of(["aggregation", "vt", "cwe"]) == ["cwe", "fwe", "vt"]
    assert sorted(name for members in GROUPS.values() for name in members) == sorted(TASKS)


def test_published_questions_are_fetched_once_and_proven(tmp_path, monkeypatch):
    import hashlib
    from dataclasses import replace
    from pathlib import Path

    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)  # the file is fetched
    published = tmp_path / "published.json"
    published.write_bytes(Path(SQUAD).read_bytes())
    sha256 = hashlib.sha256(published.read_bytes()).hexdigest()
    url = published.as_uri()
    source = replace(SOURCES["squad"], published={(tmp_path / "gone.json").as_uri(): sha256, url: sha256})
    path = source.path(None)
    assert path.read_bytes() == published.read_bytes()
    published.unlink()
    assert source.path(None) == path  # offline from then on
    path.write_text("torn")
    with pytest.raises(UserError, match=r"squad-dev-v2\.0\.json could not be fetched.*benchmark\.squad=FILE"):
        source.path(None)
    published.write_text("another")
    with pytest.raises(UserError, match="gives another file than the published one"):
        source.path(None)
