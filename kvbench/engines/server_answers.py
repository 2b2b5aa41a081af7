"""The answers of OpenAI's completions protocol, with the additions of some servers, as completions."""

import json
import math
from collections.abc import Sequence
from typing import Any

from kvbench.engines.base import ROUNDING, CannotAnswer, Completion, Scored, Top
from kvbench.utils.numbers import is_number
from kvbench.utils.text import first_line

AS_ID = "token_id:"  # prefix of a token that a server writes as its id
MOST_WORDS = 300  # characters of a server's error text


class BadAnswer(CannotAnswer):
    """JSON that is not an answer of the protocol."""


def answer_of(node: object) -> Completion:
    """The completion in an answer to /completions. Raises BadAnswer for anything else."""
    choice = _choice(node)
    ids = choice.get("token_ids")
    if not isinstance(ids, list) or not all(type(token) is int for token in ids):
        ids = None
    return _completion(node, choice, choice["text"], ids, _tops(choice.get("logprobs")))


def chat_answer_of(node: object) -> Completion:
    """The completion in an answer to /chat/completions. Raises BadAnswer for anything else."""
    choice = _first_choice(node)
    message = choice.get("message") if choice else None
    text = message.get("content") if isinstance(message, dict) else None
    if choice is None or not isinstance(message, dict) or not isinstance(text, str | None):
        raise BadAnswer("the answer has no choices with a message: it is not an OpenAI chat completion")
    return _completion(node, choice, text or "", None, _chat_tops(choice.get("logprobs")))


def _completion(
    node: object, choice: dict[str, Any], text: str, ids: list[int] | None, tops: list[Top] | None
) -> Completion:
    """The completion with counts of tokens and the reason for the end, which both protocols have in the same fields."""
    usage = node.get("usage") if isinstance(node, dict) else None
    counted, generated = (_count(usage, name) for name in ("prompt_tokens", "completion_tokens"))
    finish = choice.get("finish_reason")
    return Completion(text, ids, counted, tops, finish if isinstance(finish, str) else None, generated)


def _chat_tops(node: object) -> list[Top] | None:
    """`logprobs.content` of a chat: at each place a list of tokens with their log-probabilities."""
    places = node.get("content") if isinstance(node, dict) else None
    if not isinstance(places, list):
        return None
    tops = []
    for place in places:
        entries = place.get("top_logprobs") if isinstance(place, dict) else None
        listed = entries if isinstance(entries, list) else []
        named = [entry for entry in listed if isinstance(entry, dict) and isinstance(entry.get("token"), str)]
        tops.append(_top({entry["token"]: entry.get("logprob") for entry in named}))
    return tops if any(tops) else None


def _count(usage: object, name: str) -> int | None:
    value = usage.get(name) if isinstance(usage, dict) else None
    return value if type(value) is int else None


def words_of(node: object) -> str:
    """A server's description of an error, in one line; "" without one."""
    while isinstance(node, dict):
        node = next((node[key] for key in ("error", "message", "detail") if node.get(key)), "")
    if isinstance(node, list):
        node = json.dumps(node)
    return first_line(node) if isinstance(node, str) and node.strip() else ""


def model_of(node: object) -> str | None:
    """The model that an answer names."""
    name = node.get("model") if isinstance(node, dict) else None
    return name if isinstance(name, str) else None


def check_model(node: object, expected: str | None) -> None:
    """Raise BadAnswer if another model answers than at first."""
    if (name := model_of(node)) != expected:
        raise BadAnswer(f"the answer is from model {name!r}, but the first answer was from {expected!r}")


def echoed(node: object, before: int, tokens: int) -> Sequence[Top] | None:
    """The likeliest tokens at each of the `tokens` echoed tokens after the first `before` ones; None without them."""
    tops = _tops(_choice(node).get("logprobs"))
    part = (tops or [])[before : before + tokens]
    return part if len(part) == tokens and all(part) else None


def scored(node: object, ids: Sequence[int], before: int) -> Scored:
    """The log-probabilities of an echoed prompt's tokens `ids` from place `before` on.

    Raises BadAnswer if the answer has none, or log-probabilities of other tokens.
    """
    logprobs = _choice(node).get("logprobs")
    logprobs = logprobs if isinstance(logprobs, dict) else {}
    values, names = logprobs.get("token_logprobs"), logprobs.get("tokens")
    if not isinstance(values, list):
        raise BadAnswer("the answer has no log-probabilities of the prompt's tokens")
    if len(values) not in (len(ids), len(ids) + 1):  # with the generated token, or without it
        raise BadAnswer(f"the answer has log-probabilities of {len(values):,} tokens, but the prompt has {len(ids):,}")
    for place, (token, name) in enumerate(zip(ids, names if isinstance(names, list) else [], strict=False)):
        if isinstance(name, str) and name.startswith(AS_ID) and name != f"{AS_ID}{token}":
            raise BadAnswer(f"token {place} of the prompt is {name!r} in the answer, but {AS_ID}{token} was sent")
    numbers = map(_number, values[before : len(ids)])
    part = [math.nan if number is None else number for number in numbers]
    return Scored(part, echoed(node, before, len(ids) - before), answer_of(node).prompt_tokens)


def _first_choice(node: object) -> dict[str, Any] | None:
    if isinstance(node, dict) and node.get("error"):  # some servers send errors with status 200
        raise BadAnswer(f"the answer is an error: {words_of(node)[:MOST_WORDS]}")
    choices = node.get("choices") if isinstance(node, dict) else None
    choice = choices[0] if isinstance(choices, list) and choices else None
    return choice if isinstance(choice, dict) else None


def _choice(node: object) -> dict[str, Any]:
    choice = _first_choice(node)
    if choice is None or not isinstance(choice.get("text"), str):
        raise BadAnswer("the answer has no choices with a text: it is not an OpenAI completion")
    return choice


def _tops(node: object) -> list[Top] | None:
    """`logprobs.top_logprobs`; {} at a place without any, such as the first token of a prompt."""
    places = node.get("top_logprobs") if isinstance(node, dict) else None
    if not isinstance(places, list) or not places:
        return None
    tops = [_top(place) if isinstance(place, dict) else {} for place in places]
    return tops if any(tops) else None


def _top(place: dict[str, object]) -> Top:
    top = {token: number for token, value in place.items() if (number := _number(value)) is not None}
    if wrong := next((number for number in top.values() if number > ROUNDING), None):
        raise BadAnswer(f"the answer gives {wrong:g} as a log-probability")
    return top


def _number(value: object) -> float | None:
    """A finite number; None for anything else."""
    if not is_number(value):
        return None
    try:
        number = float(value)
    except OverflowError:  # an integer of hundreds of digits
        return None
    return number if math.isfinite(number) else None
