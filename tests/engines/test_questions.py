"""Where kvbench's rules end an engine's answer."""

import re

import pytest

from kvbench.benchmarks import Sample, Turn
from kvbench.engines.base import CannotAnswer, Completion, Question, Scored
from kvbench.engines.questions import (
    check_answer,
    check_count,
    check_form,
    check_scored,
    check_whole,
    ended,
    ended_text,
    question,
    until_stop,
)
from kvbench.errors import UserError
from kvbench.evaluation.prompts import tokenise


def asked(**rules) -> Question:
    return Question("a", [1, 2, 3], "x", 6, frozenset({9}), **rules)


def test_tokens_end_before_the_first_stop_token_or_at_the_limit():
    assert until_stop([4, 5, 9, 6], asked()) == [4, 5]
    assert until_stop([9], asked()) == []
    assert until_stop(range(100, 120), asked()) == [*range(100, 106)]


@pytest.mark.parametrize(
    "text, rules, expected",
    [
        ("a\nb", {}, "a\nb"),
        ("a\nb", {"newline": True}, "a"),
        ("\nb", {"newline": True}, ""),
        ("\nb\nc", {"newline": True, "at_least_one": True}, "\nb"),
        ("a", {"newline": True}, "a"),
    ],
)
def test_text_ends_at_a_line_end_where_the_benchmark_says_so(text, rules, expected):
    assert ended_text(asked(**rules), text) == expected


def test_tokens_win_over_text(embedded):
    ids = embedded.plain_tokens(" the answer")
    tokens, text = ended(asked(), Completion("something else", [*ids, 9, 5]), embedded)
    assert (tokens, text) == (ids, " the answer")
    assert ended(asked(), Completion("text"), embedded) == (None, "text")


def test_another_count_of_the_prompts_tokens_is_an_error():
    check_count(asked(), Completion("", prompt_tokens=3))
    with pytest.raises(CannotAnswer, match="counts 4 tokens in the prompt, and kvbench 3"):
        check_count(asked(), Completion("", prompt_tokens=4))
    with pytest.raises(CannotAnswer, match="did not report the prompt's number"):
        check_count(asked(), Completion(""))


def test_a_text_of_more_tokens_than_allowed_is_an_error(embedded):
    allowed = [Completion("a", finish="length", generated=6), Completion("a", finish="stop", generated=7)]
    for completion in [*allowed, Completion("a", finish="stop")]:  # the seventh token is the one that ended the answer
        check_whole(asked(), completion, embedded)
    for finish, generated in (("length", 7), ("stop", 8)):
        with pytest.raises(CannotAnswer, match=f"counts {generated} tokens in the answer, and at most 6 are allowed"):
            check_whole(asked(), Completion("a", finish=finish, generated=generated), embedded)
    ids = embedded.plain_tokens(" one two three four five six seven eight nine ten")
    check_whole(asked(), Completion("", ids, finish="length"), embedded)  # ids are cut at the limit


@pytest.mark.parametrize(
    "scored, message",
    [
        (Scored([-1.0, -0.1], read=6), "counts 6 tokens in prompt and text, and kvbench 5"),
        (Scored([-1.0, -0.1]), "counts None tokens"),
        (Scored([-1.0], read=5), "scored 1 of 2 tokens"),
        (Scored([-1.0, float("nan")], read=5), "gives nan as log-probability of token 1 of the text"),
        (Scored([-1.0, float("-inf")], read=5), "gives -inf as log-probability of token 1"),
        (Scored([1.0, -1.0], read=5), "gives 1.0 as log-probability of token 0"),
    ],
)
def test_a_text_that_was_read_or_scored_otherwise_is_an_error(scored, message):
    with pytest.raises(CannotAnswer, match=message):
        check_scored(asked(), [7, 8], scored)
    check_scored(asked(), [7, 8], Scored([-1.0, 1e-6], read=5))  # rounding may exceed 0


def test_a_question_has_the_tokens_of_the_prompt_and_later_turns(embedded):
    sample = Sample("a", "Who?", ("me",), 6, turns=(Turn("And now?", "You."),))
    prompt, made = tokenise(embedded, sample, "visible"), question(embedded, sample)
    assert made.ids == [*prompt.context.tolist(), *prompt.question.tolist()]
    assert embedded.tokenizer(made.text, add_special_tokens=False)["input_ids"] == made.ids
    assert made.stops == embedded.stop_tokens and made.max_new_tokens == 6 and not made.newline


@pytest.mark.parametrize(
    ("completion", "said"),
    [
        (None, "None: it must be a Completion"),
        ("Paris", "'Paris': it must be a Completion"),
        (Completion(b"Paris"), "a Completion with text=b'Paris': it must be a text"),
        (Completion("Paris", tokens=["1"]), "a Completion with tokens=['1']: a list of integers is needed"),
    ],
)
def test_what_a_session_of_a_users_returns_is_one_line(completion, said, embedded):
    line = re.escape(f"Session.complete returned {said}")
    with pytest.raises(UserError, match=line):
        check_form(completion)
    with pytest.raises(UserError, match=line):
        check_answer(asked(), completion, embedded, chats=False)
