"""Answers of servers as completions: what is no log-probability is none, and no traceback."""

import pytest

from kvbench.engines.server_answers import answer_of, chat_answer_of, scored

HUGE = -(10**400)  # JSON has integers of any size


@pytest.mark.parametrize("entries", [5, "ab", None, {"token": "a"}, [5, None, {"token": [97], "logprob": -1.0}]])
def test_a_chats_likeliest_tokens_of_another_form_are_none(entries):
    answered = {"message": {"content": "a"}, "finish_reason": "stop"}
    odd = {"choices": [{**answered, "logprobs": {"content": [{"token": "a", "top_logprobs": entries}]}}]}
    assert chat_answer_of(odd).top is None and chat_answer_of(odd).text == "a"


def test_a_number_beyond_floating_point_is_no_log_probability():
    likeliest = {"top_logprobs": [{"a": HUGE, "b": -1.0}], "token_logprobs": [HUGE, -1.0]}
    node = {"choices": [{"text": "a", "logprobs": likeliest}]}
    assert answer_of(node).top == [{"b": -1.0}]
    first, second = scored(node, [1, 2], 0).logprobs
    assert first != first and second == -1.0
