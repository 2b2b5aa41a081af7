"""LongBench's scores against the official ones."""

import json
import math
import os
import string
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvbench.errors import UserError
from kvbench.metrics import backends
from kvbench.metrics.backends import check_backend
from kvbench.metrics.longbench import (
    CHINESE_PUNCTUATION,
    FIRST_LINE,
    METRICS,
    classification,
    code_sim,
    companions,
    count,
    qa_f1,
    qa_f1_zh,
    retrieval,
    retrieval_zh,
    score,
)
from tests.support.needs import needs
from tests.support.paths import ROOT

SHARED = os.environ.get("KVBENCH_DATA")


def rows(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def unequal(fixtures: list[dict]) -> list[tuple]:
    scores = [score(row["dataset"], row["prediction"], row["answers"], row["all_classes"]) for row in fixtures]
    return [
        (row["dataset"], row["prediction"][:60], row["answers"][0][:60], ours, row["score"])
        for row, ours in zip(fixtures, scores, strict=True)
        if abs(ours - row["score"]) > 1e-9
    ]


def test_every_score_is_the_official_one():
    fixtures = rows((ROOT / "tests") / "data/longbench_metrics/parity.jsonl")
    assert {row["dataset"]: row["metric"] for row in fixtures} == METRICS
    assert unequal(fixtures) == []


@pytest.mark.heavy
@needs("data", "" if SHARED else "KVBENCH_DATA names no folder with the whole set of official scores")
def test_every_score_of_the_whole_set_is_the_official_one():
    fixtures = rows(Path(SHARED) / "parity/longbench.jsonl")
    assert len(fixtures) > 600
    assert unequal(fixtures) == []


def test_there_are_21_tasks_and_four_are_scored_on_their_first_line():
    assert len(METRICS) == 21
    assert FIRST_LINE == {"trec", "triviaqa", "samsum", "lsht"} < set(METRICS)


@pytest.mark.parametrize("task", sorted(FIRST_LINE))
def test_only_the_first_line_after_leading_line_ends_counts(task):
    classes = ["right", "wrong"]
    assert score(task, "\n\nright\nwrong", ["right"], classes) == pytest.approx(1)
    assert score(task, "wrong\nright", ["right"], classes) == 0
    assert score(task, " \nright", ["right"], classes) == 0  # a blank is no line end: the line is empty


def test_other_tasks_count_every_line():
    assert score("hotpotqa", "wrong\nright", ["right"], None) == pytest.approx(2 / 3)


def test_the_best_answer_counts_and_no_answer_is_0():
    assert score("hotpotqa", "York", ["New York", "York", "Leeds"], None) == 1
    assert score("hotpotqa", "York", [], None) == 0


# What the official code gives where its definition meets an edge.
QA = [
    ("The  Cat!", "a cat", 1),
    ("cat cat cat", "cat", 0.5),  # bags of words: one of three, one of one
    ("theatre", "atre", 0),  # articles are whole words
    ("co-operate", "cooperate", 1),  # punctuation leaves no blank
    ("a-the", "athe", 1),  # and goes before the articles do
    ("a the an", "the", 0),  # nothing left on either side is nothing in common
    ("", "", 0),
    ("", "Madrid", 0),
    ("!!!", "!!!", 0),
    ("“cat”", "cat", 0),  # only ASCII punctuation goes
    ("the\u00a0cat", "cat", 1),  # a no-break space is a blank
    ("the\u200bcat", "cat", 0),  # a zero-width one is not
]


@pytest.mark.parametrize(("prediction", "answer", "expected"), QA)
def test_f1_of_english_words(prediction, answer, expected):
    assert qa_f1(prediction, answer) == pytest.approx(expected)


CHINESE = [
    ("北京。", "北京", 1),
    ("，！", "，！", 0),
    ("北京 是 首都", "北京是首都", 1),
    ("《北京》", "北京", 2 / 3),  # 《 is not in the official set, 》 is
    ("The cat", "the CAT", 1),
    ("", "北京", 0),
]


@pytest.mark.parametrize(("prediction", "answer", "expected"), CHINESE)
def test_f1_of_chinese_words(prediction, answer, expected):
    assert qa_f1_zh(prediction, answer) == pytest.approx(expected)


def test_the_chinese_punctuation_is_the_official_set():
    assert len(CHINESE_PUNCTUATION) == len(set(CHINESE_PUNCTUATION)) == 74
    assert set("。，、；：？！“”‘’（）》「」『』【】…—") <= set(CHINESE_PUNCTUATION)
    assert not set("《〈〉·．﹔") & set(CHINESE_PUNCTUATION)


CLASSES = ["human", "human being", "city", "cit", "ci", "number", "other"]


CLASSIFIED = [
    ("number", "number", 1),
    ("number or other", "number", 1 / 2),
    ("number or other", "human", 0),
    ("a human being", "human being", 1),
    ("a human being", "human", 1 / 2),  # the longer name is no part of the answer
    ("Number", "number", 0),  # case counts
    ("", "number", 0),
    ("nothing of that", "number", 0),  # no similarity search, though the official code has one that is never reached
]


@pytest.mark.parametrize(("prediction", "answer", "expected"), CLASSIFIED)
def test_classification_is_one_over_the_classes_named(prediction, answer, expected):
    assert classification(prediction, answer, CLASSES) == expected


def test_classification_skips_the_entry_behind_a_deleted_one():
    # named: cit, ci, city. "cit" is deleted, "ci" slides into its place and is never looked at
    assert classification("city", "city", ["cit", "ci", "city"]) == 1 / 2
    assert classification("city", "city", ["cit", "city", "ci"]) == 1  # here "city" is skipped and "ci" deleted
    assert classification("city", "city", ["cit", "ci", "c", "city"]) == 1 / 2
    assert classification("city", "city", ["city", "cit", "ci"]) == 1 / 2


def test_classification_needs_the_class_names():
    with pytest.raises(UserError, match="needs all_classes"):
        score("trec", "city", ["city"], None)


def test_retrieval_is_the_share_of_the_right_number():
    assert retrieval("Paragraph 3", "Paragraph 3") == 1
    assert retrieval("3 or 4, maybe 3", "Paragraph 3") == pytest.approx(2 / 3)
    assert retrieval("Paragraph 03", "Paragraph 3") == 0  # numbers are compared as text
    assert retrieval("three", "Paragraph 3") == retrieval("", "Paragraph 3") == 0
    assert retrieval("3.14", "Paragraph 3") == 0.5
    assert retrieval_zh("段落3", "段落3") == 1
    assert retrieval_zh("段落３", "段落3") == 0  # a full-width digit is a number, and another text


def test_a_retrieval_answer_without_its_paragraph_is_refused():
    for task, answer in {"passage_retrieval_en": "paragraph 3", "passage_retrieval_zh": "Paragraph 3"}.items():
        with pytest.raises(UserError, match=f"answer '{answer}' of a retrieval task has no"):
            score(task, "3", [answer], None)


def test_counting_is_the_share_of_the_right_number():
    assert count("There are 12.", "12") == 1
    assert count("12 12 13", "12") == pytest.approx(2 / 3)
    assert count("1,200", "1200") == 0
    assert count("no idea", "12") == 0


CODE = [
    ("x = 1", "x = 1", 1),
    ("\n\nx = 1\ny = 2", "x = 1", 1),
    ("# x\n// y\n`z`\nx = 1", "x = 1", 1),
    (" \nx = 1", "x = 1", 0.33),  # a line of blanks is a line; one character of six in common
    ("# x\n\nx = 1", "x = 1", 0),  # and so is an empty one behind a comment
    ("# only\n# comments", "x = 1", 0),
    ("# only\n# comments", "", 1),  # two empty lines are equal
    ("", "x = 1", 0),
    ("abcd", "bcde", 0.75),
]


@pytest.mark.parametrize(("prediction", "answer", "expected"), CODE)
def test_code_is_compared_on_its_first_line_without_marks(prediction, answer, expected):
    assert code_sim(prediction, answer) == expected


def test_code_is_compared_by_difflib():
    assert check_backend() == "difflib"
    # its longest block "ddd" leaves nothing else to pair; python-Levenshtein would pair a, b, c and e
    assert code_sim("axbxcxexddd", "dddabce") == round(100 * 2 * 3 / 18) / 100 == 0.33


def test_unknown_tasks_are_refused():
    with pytest.raises(UserError, match=r"unknown LongBench task 'qaspr'\. Did you mean 'qasper'\?"):
        score("qaspr", "", [""], None)


TEXTS = st.text(alphabet=st.sampled_from("ab the an.,!#/`0123\n 北京是首都。《段落Paragraph"), max_size=40)


WORDS = st.lists(st.sampled_from("cat dog 7 北京 首都 12".split()), min_size=1, max_size=8).map(" ".join)


def valid(task: str, answers: list[str]) -> list[str]:
    if METRICS[task].startswith("retrieval"):
        return [f"{'段落' if task.endswith('zh') else 'Paragraph '}{i}" for i, _ in enumerate(answers)]
    return answers


@given(st.sampled_from(sorted(METRICS)), TEXTS, st.lists(TEXTS, min_size=1, max_size=4), st.randoms())
def test_a_score_lies_in_0_to_1_and_the_answers_order_does_not_matter(task, prediction, answers, random):
    answers = valid(task, answers)
    value = score(task, prediction, answers, [*answers, "other"])
    assert 0 <= value <= 1
    shuffled = random.sample(answers, len(answers))
    assert score(task, prediction, shuffled, [*answers, "other"]) == value
    assert all(0 <= other <= 1 for other in companions(task, prediction, answers).values())
    assert companions(task, prediction, shuffled) == companions(task, prediction, answers)


@given(st.sampled_from(sorted(METRICS)), WORDS)
def test_the_answer_itself_scores_1(task, text):
    """Where something of it is scored: words, not articles or punctuation alone; numbers in the numbers' tasks."""
    answer = valid(task, [text])[0] if "retrieval" in task else "12" if task == "passage_count" else text
    value = score(task, answer, [answer], [answer, "other"])
    assert math.isclose(value, 1, abs_tol=1e-8)


@given(st.sampled_from([qa_f1, qa_f1_zh]), st.text(alphabet=string.punctuation + " 。，", max_size=10))
def test_punctuation_alone_has_no_f1_even_with_itself(metric, text):
    if metric is qa_f1:
        text = text.replace("。", "").replace("，", "")
    assert metric(text, text) == 0


@given(TEXTS)
def test_words_of_jieba_join_to_the_text(text):
    assert "".join(backends.words(text)) == text
