"""Truncation of prompts in the middle, and the part of the question that remains."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kvbench.utils.tokenizer import Tokenizer

# Prompts per tokenizer call; a fast tokenizer uses all cores for one call.
TOGETHER = 16
TEMPLATE_ROOM = 64  # tokens that the chat template, and decoding a cut prompt, may add to a prompt


class PromptText(NamedTuple):
    text: str
    question: str  # the end of the text


def without_middle(
    prompts: Sequence[PromptText], max_length: int, last: int, tokenizer: Tokenizer
) -> Iterator[PromptText]:
    """Each prompt cut to at most about `max_length` tokens, with the part of the question that remains.

    Of a longer prompt the first max_length // 2 and the `last` tokens are decoded together without special tokens, as
    in LongBench v2; the tokens are those of `tokenizer.encode`.
    """
    for (prompt, question), ids in _encoded(prompts, tokenizer):
        if len(ids) <= max_length:
            yield PromptText(prompt, question)
        else:
            yield _decoded(ids[: max_length // 2], ids[-last:], question, tokenizer)


def decoded_without_middle(
    prompts: Sequence[PromptText], max_length: int, last: int, tokenizer: Tokenizer
) -> Iterator[PromptText]:
    """The same as in InfiniteBench's code, which also decodes prompts that fit."""
    for (_, question), ids in _encoded(prompts, tokenizer):
        start, end = (ids[: max_length // 2], ids[-last:]) if len(ids) > max_length else ([], ids)
        yield _decoded(start, end, question, tokenizer)


def _encoded(prompts: Sequence[PromptText], tokenizer: Tokenizer) -> Iterator[tuple[PromptText, list[int]]]:
    for start in range(0, len(prompts), TOGETHER):
        chunk = prompts[start : start + TOGETHER]
        yield from zip(chunk, tokenizer([text for text, _ in chunk], truncation=False)["input_ids"], strict=True)


def _decoded(start: list[int], end: list[int], question: str, tokenizer: Tokenizer) -> PromptText:
    """The text of both parts, and the part of the question at its end."""
    text = tokenizer.decode(start + end, skip_special_tokens=True)
    remainder = question_in(tokenizer.decode(end, skip_special_tokens=True), question, tokenizer)
    return PromptText(text, remainder if text.endswith(remainder) else text[-len(remainder) :])


def question_in(end: str, tail: str, tokenizer: Tokenizer) -> str:
    """The part of a cut prompt's second half that belongs to `tail`.

    This is `tail` itself, unless decoding changed it (special tokens in it are dropped, some tokenizers change
    blanks): then `tail` encoded and decoded, or else the last len(tail) characters of the end. If `tail` is longer than
    the second half, the question is all of that half.
    """
    decoded = tokenizer.decode(tokenizer(tail, add_special_tokens=False)["input_ids"], skip_special_tokens=True)
    for candidate in (tail, decoded):
        if end.endswith(candidate):
            return candidate
    return end[-len(tail) :]
