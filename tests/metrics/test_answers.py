"""Metrics by name."""

import importlib
import sys
from decimal import Decimal
from string import ascii_uppercase

import numpy as np
import pytest
import torch

from kvbench.errors import UserError
from kvbench.metrics.answers import METRICS, check, score, source
from kvbench.utils.hashing import file_hash
from tests.support import metric


@pytest.mark.parametrize(
    "metric, prediction, answer, expected",
    [
        ("contains", "It is the Blue key.", "blue key", 1),
        ("contains", "It is bluekey", "blue key", 0),
        ("contains", "12 May", "2 May", 0),
        ("exact", "The blue key!", "a blue key", 1),
        ("exact", "the blue key, I think", "blue key", 0),
        ("f1", "the blue door", "blue key", 0.5),
        ("contains", "中国的首都是北京。", "北京", 1),
        ("contains", "中国的首都是Beijing。", "Beijing", 1),
        ("contains", "中国的首都是北京。", "南京", 0),
        ("contains", "首都は東京です。", "東京", 1),
        ("contains", "수도는 서울입니다.", "서울", 1),
        ("contains", "เมืองหลวงคือกรุงเทพ", "กรุงเทพ", 1),
        ("contains", "Столица — Москва.", "Москва", 1),
        ("contains", "Столица — Москвариум.", "Москва", 0),
        ("exact", "「北京」。", "北京", 1),
        ("f1", "是北京。", "北京", 0.8),
        ("rouge_l", "one two three", "one three", 0.8),
        ("choice", "B", "b", 1),
        ("choice", "(B) Paris", "B", 1),
        ("choice", "B. Paris, not A", "B", 1),
        ("choice", "A dog can bark, so the answer is C.", "C", 1),
        ("choice", "Answer: (D)", "D", 1),
        ("choice", "A dog can bark", "A", 0),
        ("choice", "", "A", 0),
    ],
)
def test_scores_by_hand(metric, prediction, answer, expected):
    assert score(metric, prediction, [answer]) == pytest.approx(expected)


@pytest.mark.parametrize(
    "prediction, letter",
    [
        ("The answer is B.", "B"),
        ("The correct answer (b) is Paris.", "B"),
        ("The answer is B because it is Paris", "B"),
        ("The answer is A because it is Paris", "A"),
        ("The answer is **A** and nothing else", "A"),
        ("Answer: A (Paris)", "A"),
        ("Answer: A\nA dog can bark", "A"),
        ("Answer:\n\nI", "I"),
        ("The answer is a", "A"),
        ("The answer is a combination of the two, namely (B).", None),
        ("The answer is a combination, so my answer is (B).", "B"),
        ("Answer: I think it is B.", None),
        ("Answer: I'm sure. The answer is C.", "C"),
        ("Answer: A reasonable person would pick (C).", None),
        ("Answer: A-levels. The answer is D", "D"),
        ("This answers all. The answer is C", "C"),
        ("(B), as a good answer: a guess", "B"),
        ("The answer's B", "B"),
        ("The answer's A, not B", "A"),
        ("The answer's a mixture", None),
        ("The answer's S is its first letter. The answer is B", "S"),
        ("The answer's not A. The answer is B", "B"),
        ("The correct answer is option B", "B"),
        ("The answer is option A because it is Paris", "A"),
        (r"The answer is $\boxed{B}$", "B"),
        (r"The answer is \boxed{\text{B}} because A is wrong", "B"),
        ("Answer: __B__", "B"),
    ],
)
def test_the_letter_of_a_choice_is_no_article_or_pronoun(prediction, letter):
    found = [other for other in ascii_uppercase if score("choice", prediction, [other])]
    assert found == [letter] * (letter is not None)


@pytest.mark.parametrize(
    "prediction",
    [
        *("**B**", "*B*", '"B"', "`B`\n\nIt is.", "（B）", "【B】 巴黎", "B。", "B、巴黎", "B）巴黎", "$B$", "B;"),
        *("**B**. Paris", "*B*: Paris", "__B__. Paris", "`B`) Paris", "(**B**) Paris", r"$\boxed{B}$"),
    ],
)
def test_a_letter_at_the_beginning_may_have_any_marks_around_it(prediction):
    assert [other for other in ascii_uppercase if score("choice", prediction, [other])] == ["B"]


@pytest.mark.parametrize(
    "prediction",
    ["A cat", "**A** cat", "I'm sure", "E-mail", "C# is one", "A/B", "B & C", "A - B", "**A** - B", "A_1"],
)
def test_a_letter_before_more_than_a_mark_is_no_choice(prediction):
    assert not [other for other in ascii_uppercase if score("choice", prediction, [other])]


@pytest.mark.parametrize("metric", METRICS)
def test_what_a_model_thinks_before_its_answer_is_not_scored(metric):
    assert score(metric, "<think>\nIs the answer A? B?\n</think>\n\nB", ["B"]) == 1
    assert score(metric, "Is the answer A? B?\n</think>\n\nB", ["B"]) == 1  # where the template begins to think
    assert score(metric, "<think>\nThe answer is B.\n</think>\n\nC", ["B"]) == 0
    assert score(metric, "<think>\nThe answer is B.", ["B"]) == 0


def test_a_function_gets_what_a_model_thinks_too():
    assert score("tests.support.metric.shortest", "<think>a</think>b", ["a" * 34, "b" * 68]) == 0.5


@pytest.mark.parametrize("metric", METRICS)
def test_the_best_answer_counts(metric):
    assert score(metric, "b", ["z", "b"]) == 1
    assert score(metric, "b", ["z", "y"]) == 0


def test_a_function_gets_the_prediction_and_all_answers():
    assert score("tests.support.metric.shortest", "abc", ["abcdef", "abcd"]) == 0.75
    assert len(source("tests.support.metric.shortest")) == 64
    assert source("f1") is None


@pytest.mark.parametrize(
    "metric, answers, message",
    [
        (
            "f2",
            (),
            "unknown metric 'f2'. Did you mean 'f1'? Allowed: choice, contains, exact, f1, module.function, rouge_l",
        ),
        ("no.such.function", (), "metric=no.such.function cannot be imported: No module named 'no'"),
        ("math.pi", (), "metric=math.pi is float, not a function"),
        (
            "kvbench.utils.text.first_line",
            (),
            "metric=kvbench.utils.text.first_line is called with a prediction and a list of answers: too many "
            "positional arguments",
        ),
        ("choice", ["Paris"], "answer 'Paris' is not a letter, which metric=choice compares"),
    ],
)
def test_mistakes_are_one_line(metric, answers, message):
    with pytest.raises(UserError) as error:
        check(metric, answers)
    assert str(error.value) == message


@pytest.mark.parametrize(
    "metric, answer", [("contains", "A"), ("exact", "%"), ("f1", "The"), ("contains", "。"), ("f1", "...")]
)
def test_an_answer_without_a_word_is_refused_where_words_are_compared(metric, answer):
    with pytest.raises(UserError) as error:
        check(metric, ["Paris", answer])
    assert str(error.value) == (
        f"answer '{answer}' has no word that metric={metric} compares: it ignores punctuation and a, an, the; "
        "metric=choice compares a letter, module.function whatever it reads"
    )


@pytest.mark.parametrize("answer", ["北京在中国", "столица Москва"])
def test_an_answer_without_an_ascii_letter_or_digit_is_refused_under_rouge_l(answer):
    with pytest.raises(UserError) as error:
        check("rouge_l", ["Paris", answer])
    assert str(error.value) == (
        f"answer '{answer}' has no ASCII letter or digit, all that metric=rouge_l compares: "
        "metric=f1 compares words of any script"
    )


def test_a_function_must_return_a_share():
    with pytest.raises(UserError, match="returned 2: a number from 0 to 1 is needed"):
        score("tests.support.metric.two", "a", ["b"])


@pytest.mark.parametrize("value", [np.float32(0.5), np.int64(1), True, np.bool_(True)])
def test_a_function_may_return_a_number_of_numpy(value, monkeypatch):
    monkeypatch.setattr(metric, "two", lambda prediction, answers: value)
    assert score("tests.support.metric.two", "a", ["b"]) == float(value)


@pytest.mark.parametrize("value", [torch.tensor(1.0), Decimal(1), 1 + 2**-52, np.float32(1.0000001)])
def test_a_function_may_return_what_rounding_put_above_1(value, monkeypatch):
    """The cosine of a text with itself ended the run: 1.0000001 is no number from 0 to 1."""
    monkeypatch.setattr(metric, "two", lambda prediction, answers: value)
    assert score("tests.support.metric.two", "a", ["b"]) == 1.0


@pytest.fixture
def own_metric(tmp_path, monkeypatch):
    """A file with a metric that returns its one constant, written and, where asked, imported again."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # which an edit within a second would not replace
    file = tmp_path / "edited_metric.py"

    def write(value: float, again: bool = False, before: str = ""):
        file.write_text(f"{before}def score(prediction, answers):\n    return {value}\n")
        if again:
            importlib.reload(sys.modules["edited_metric"])
        return file

    yield write
    sys.modules.pop("edited_metric", None)


EDITED = r"metric=edited_metric.score: .*edited_metric.py changed after it was imported: restart Python"


def test_the_hash_of_a_function_is_that_of_the_file_that_was_imported(own_metric):
    file = own_metric(0.25)
    assert source("edited_metric.score") == file_hash(file) and score("edited_metric.score", "", []) == 0.25
    own_metric(0.75)
    with pytest.raises(UserError, match=EDITED):
        source("edited_metric.score")
    assert score("edited_metric.score", "", []) == 0.25  # samples made before keep their function
    own_metric(0.75, again=True)
    assert source("edited_metric.score") == file_hash(file) and score("edited_metric.score", "", []) == 0.75


def test_a_helper_that_was_edited_makes_another_function(own_metric):
    own_metric(0.5, before="SHARE = 1\n")
    source("edited_metric.score")
    file = own_metric(0.5, before="SHARE = 2\n")  # the function's own code is the same
    with pytest.raises(UserError, match=EDITED):
        source("edited_metric.score")
    own_metric(0.5, again=True, before="SHARE = 2\n")
    assert source("edited_metric.score") == file_hash(file)


def test_a_function_that_was_imported_and_edited_before_kvbench_saw_it_is_refused(own_metric):
    own_metric(0.25)
    module = importlib.import_module("edited_metric")
    for _ in range(1000):  # Python rewrites the code of a function that is called often
        assert module.score("", []) == 0.25
    own_metric(0.75)
    with pytest.raises(UserError, match=EDITED):
        source("edited_metric.score")
    file = own_metric(0.25)
    assert source("edited_metric.score") == file_hash(file)


def test_a_function_of_a_notebook_has_no_file_to_name(monkeypatch):
    exec("def score(prediction, answers): return 1", namespace := {"__name__": "__main__"})
    monkeypatch.setattr(sys.modules["__main__"], "notebooks_score", namespace["score"], raising=False)
    with pytest.raises(UserError, match=r"metric=__main__.notebooks_score: it is in no file"):
        source("__main__.notebooks_score")
