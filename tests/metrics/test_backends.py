"""The packages behind LongBench's metrics."""

import os
import subprocess
import sys
import textwrap

import pytest

from kvbench.metrics.longbench import (
    METRICS,
    companions,
    rouge,
    rouge_zh,
)
from tests.support.paths import ROOT


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


@pytest.mark.heavy
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


@pytest.mark.heavy
@pytest.mark.parametrize("call", ["check_backend()", "score('lcc', 'x = 1', ['y = 1'], None)"])
def test_no_score_is_made_with_python_levenshtein(levenshtein, call):
    code = f"""
    from kvbench.errors import UserError
    from kvbench.metrics.backends import check_backend
    from kvbench.metrics.longbench import score
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


@pytest.mark.heavy
def test_the_packages_behind_the_metrics_say_nothing(tmp_path):
    code = "from kvbench.metrics.longbench import *; score('vcsum', '好', ['好'], None); score('lcc', 'a', ['b'], None)"
    env = os.environ | {"PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)}  # jieba's cached dictionary is there
    done = subprocess.run(
        [sys.executable, "-W", "always", "-c", code], capture_output=True, text=True, env=env, check=True
    )
    assert done.stdout == ""
    assert not [line for line in done.stderr.splitlines() if "jieba" in line or "prefix dict" in line]
    assert "fuzzywuzzy" not in done.stderr and "Levenshtein" not in done.stderr
