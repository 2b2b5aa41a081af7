"""LongBench's metrics: the official code's scores on real and odd predictions, and the rules behind them."""

import json
import math
import os
import string
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvbench.errors import UserError
from kvbench.metrics import backends
from kvbench.metrics.longbench import (
    CHINESE_PUNCTUATION,
    FIRST_LINE,
    METRICS,
    check_backend,
    classification,
    code_sim,
    companions,
    count,
    qa_f1,
    qa_f1_zh,
    retrieval,
    retrieval_zh,
    rouge,
    rouge_zh,
    score,
)
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


@pytest.mark.skipif(SHARED is None, reason="KVBENCH_DATA names no folder with the whole set of official scores")
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


@pytest.mark.parametrize("text", ["", " ", "\n", "...", ". ."])
def test_rouge_is_0_where_the_package_fails_or_finds_nothing(text):
    assert rouge(text, "an answer") == 0
    assert rouge("a prediction", text) == 0


def test_rouge_is_that_of_the_package_rouge_and_not_googles():
    prediction, answer = "The cats sat. On the mat sat the cats.", "the cats sat on the mat."
    # distinct words: 3 common of 6 predicted, case counting, and of 5 in the answer
    assert rouge(prediction, answer) == pytest.approx(2 * (3 / 6) * (3 / 5) / (3 / 6 + 3 / 5), abs=1e-8)
    google = companions("qmsum", prediction, [answer])["rouge_score_l"]
    assert google == pytest.approx(2 * 6 / 15)
    assert companions("qmsum", prediction, ["other", answer])["rouge_score_l"] == google
    assert 1 - 1e-8 < rouge(answer, answer) < 1  # its denominator has 1e-8 added


def test_chinese_rouge_counts_jiebas_words():
    assert rouge_zh("北京是首都", "北京是中国首都") == pytest.approx(2 * (3 / 3) * (3 / 4) / (3 / 3 + 3 / 4))
    assert rouge("北京是首都", "北京是中国首都") == 0
    # Google's tokens are ASCII: for it the words are jieba's too, without punctuation
    assert companions("vcsum", "北京，是首都。", ["北京是中国首都"])["rouge_score_l"] == pytest.approx(6 / 7)


def test_google_s_rouge_stands_beside_the_rouge_tasks_only_and_sees_what_they_see():
    beside = {task for task in METRICS if companions(task, "a", ["a"])}
    assert beside == {"gov_report", "qmsum", "multi_news", "samsum", "dureader", "vcsum"}
    assert companions("samsum", "a b\nc d", ["a b"]) == {"rouge_score_l": 1}
    assert companions("qmsum", "", ["a b"]) == {"rouge_score_l": 0}


# As eval.py calls the package: three functions above it, or four for Chinese. The recursion goes back from the last
# word of the prediction to the first, which is the only one in the answer.
OFFICIAL_CALLS = """
from rouge import Rouge


def rouge_score(prediction, answer):
    try:
        return Rouge().get_scores([prediction], [answer], avg=True)["rouge-l"]["f"]
    except:
        return 0.0


def rouge_zh_score(prediction, answer):
    score = rouge_score(prediction, answer)
    return score


def scorer(metric):
    last = 0
    for words in range(900, 1010):
        if metric("a" + " b" * (words - 1), "a") > 0:
            last = words
    return last


print(scorer(rouge_score), scorer(rouge_zh_score))
"""


def deep(calls: int, function):
    return function() if calls == 0 else deep(calls - 1, function)


def test_rouge_past_pythons_recursion_limit_is_0_from_the_same_word_on_as_in_the_official_call():
    official = subprocess.run([sys.executable, "-c", OFFICIAL_CALLS], capture_output=True, text=True, check=True)
    last, last_zh = map(int, official.stdout.split())
    assert 950 < last_zh < last < 1000
    before = sys.getrecursionlimit()
    for depth in (0, 300):  # wherever it is called from
        assert deep(depth, lambda: rouge("a" + " b" * (last - 1), "a")) > 0
        assert deep(depth, lambda: rouge("a" + " b" * last, "a")) == 0
        assert deep(depth, lambda: rouge_zh("好" + "，" * (last_zh - 1), "好")) > 0
        assert deep(depth, lambda: rouge_zh("好" + "，" * last_zh, "好")) == 0
    # the limit is for a pair of sentences
    assert rouge("a" + " b" * last + ". a", "a") == 0
    assert rouge("a" + " b" * (last - 1) + ". a" + " b" * (last - 1), "a") > 0
    assert sys.getrecursionlimit() == before


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
        with pytest.raises(UserError, match=f"answer '{answer}' of a retrieval task names no"):
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


@pytest.fixture
def levenshtein(tmp_path):
    """An environment in which fuzzywuzzy finds a module Levenshtein, as python-Levenshtein installs it."""
    (tmp_path / "Levenshtein.py").write_text("def ratio(a, b):\n    return 0.5\n")
    about = tmp_path / "Levenshtein-0.27.1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: Levenshtein\nVersion: 0.27.1\n")
    (about / "top_level.txt").write_text("Levenshtein\n")
    (about / "RECORD").write_text("Levenshtein.py,,\n")
    return os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])}


@pytest.mark.parametrize("call", ["check_backend()", "score('lcc', 'x = 1', ['y = 1'], None)"])
def test_no_score_is_made_with_python_levenshtein(levenshtein, call):
    code = f"""
    from kvbench.errors import UserError
    from kvbench.metrics.longbench import check_backend, score
    try:
        print({call})
    except UserError as error:
        print("refused:", error)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, env=levenshtein, check=True
    )
    assert done.stdout.startswith("refused: fuzzywuzzy uses python-Levenshtein")
    assert "changes the scores of lcc and repobench-p" in done.stdout
    assert done.stdout.strip().endswith("pip uninstall Levenshtein")


def test_the_packages_behind_the_metrics_say_nothing(tmp_path):
    code = "from kvbench.metrics.longbench import *; score('vcsum', '好', ['好'], None); score('lcc', 'a', ['b'], None)"
    env = os.environ | {"PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)}  # jieba's cached dictionary is there
    done = subprocess.run(
        [sys.executable, "-W", "always", "-c", code], capture_output=True, text=True, env=env, check=True
    )
    assert done.stdout == ""
    assert not [line for line in done.stderr.splitlines() if "jieba" in line or "prefix dict" in line]
    assert "fuzzywuzzy" not in done.stderr and "Levenshtein" not in done.stderr


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
