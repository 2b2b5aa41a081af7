"""Truncation of prompts in the middle, and the part of the question that remains."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kvbench.utils.tokenizer import Tokenizer

# Prompts per tokenizer call; a fast tokenizer uses all cores for one call.
TOGETHER = 16


class PromptText(NamedTuple):
    text: str
    question: str  # the end of the text


def without_middle(
    prompts: Sequence[PromptText], max_length: int, last: int, tokenizer: Tokenizer
) -> Iterator[PromptText]:
    """For each prompt and its end, the question: a prompt of at most about `max_length` tokens, and its question.

    A longer prompt is the text of its first max_length // 2 and its `last` tokens, decoded together without special
    tokens, as LongBench v2 has it; the tokens are those of `tokenizer.encode`.
    """
    for (prompt, question), ids in _encoded(prompts, tokenizer):
        if len(ids) <= max_length:
            yield PromptText(prompt, question)
        else:
            yield _decoded(ids[: max_length // 2], ids[-last:], question, tokenizer)


def decoded_without_middle(
    prompts: Sequence[PromptText], max_length: int, last: int, tokenizer: Tokenizer
) -> Iterator[PromptText]:
    """The same in InfiniteBench's way: prompts that fit are decoded too."""
    for (_, question), ids in _encoded(prompts, tokenizer):
        first, end = (ids[: max_length // 2], ids[-last:]) if len(ids) > max_length else ([], ids)
        yield _decoded(first, end, question, tokenizer)


def _encoded(prompts: Sequence[PromptText], tokenizer: Tokenizer) -> Iterator[tuple[PromptText, list[int]]]:
    for start in range(0, len(prompts), TOGETHER):
        several = prompts[start : start + TOGETHER]
        yield from zip(several, tokenizer([text for text, _ in several], truncation=False)["input_ids"], strict=True)


def _decoded(first: list[int], last: list[int], question: str, tokenizer: Tokenizer) -> PromptText:
    """The text of both parts, and what is left of the question at its end."""
    text = tokenizer.decode(first + last, skip_special_tokens=True)
    left = question_in(tokenizer.decode(last, skip_special_tokens=True), question, tokenizer)
    return PromptText(text, left if text.endswith(left) else text[-len(left) :])


def question_in(end: str, tail: str, tokenizer: Tokenizer) -> str:
    """The part of a cut prompt's second half that stands for `tail`.

    This is `tail` itself, unless decoding changed it (special tokens in it are dropped, some tokenizers change
    blanks): then `tail` encoded and decoded, or else as many characters of the end as `tail` has. If `tail` is
    longer than the second half, all of that half is question.
    """
    decoded = tokenizer.decode(tokenizer(tail, add_special_tokens=False)["input_ids"], skip_special_tokens=True)
    for candidate in (tail, decoded):
        if end.endswith(candidate):
            return candidate
    return end[-len(tail) :]
