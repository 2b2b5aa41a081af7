"""Placement of needles: rules that insert sentences into a text of tokens."""

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence

from kvbench.errors import UserError
from kvbench.utils.tokenizer import Tokenizer

# The end of a sentence with the quotes and brackets that close behind it: a mark before a blank, not the point of "2.5"
# or "name.org", or a mark of Chinese, Japanese and Hindi texts, where none needs to follow.
SENTENCE_END = re.compile(r"""[.!?؟]["'”’»)\]]*(?=\s|$)|[。！？।]["'”’»」』）]*""")


def encode(text: str, tokenizer: Tokenizer) -> list[int]:
    return tokenizer(text, add_special_tokens=False)["input_ids"]


def take(source: Iterator[str], tokenizer: Tokenizer, tokens: int) -> list[int]:
    """The first `tokens` token ids of a text that comes in pieces."""
    text = ""
    while len(ids := encode(text, tokenizer)) < tokens:
        # few tokens are longer than 8 characters
        missing = 8 * (tokens - len(ids))
        while missing > 0:
            piece = next(source)
            text += piece
            missing -= len(piece)
    return ids[:tokens]


def cut(text: list[int], tokens: int, needles: int) -> list[int]:
    """The beginning of a text, so that it and needles of `needles` tokens have `tokens` tokens together."""
    if tokens <= needles:
        raise UserError(
            f"a context of {tokens} tokens has no room for needles of {needles} tokens and surrounding text"
        )
    return text[: tokens - needles]


def at_sentence_ends(text: list[int], needles: Sequence[tuple[float, str]], tokenizer: Tokenizer) -> str:
    """The text with each (depth, needle) at depth % of its tokens, moved back to the end of a sentence.

    A needle is at the start if no sentence ends before its place; at depth 100 it is appended, wherever
    the text was cut. Needles at the same place keep their order.
    """
    characters = tokenizer.decode(text).rstrip("\ufffd")  # of a character whose tokens the cut has parted
    ends = [0, *(match.end() for match in SENTENCE_END.finditer(characters))]
    parts, start = [], 0
    for depth, needle in sorted(needles, key=lambda pair: pair[0]):
        place = len(tokenizer.decode(text[: int(len(text) * depth / 100)]))
        end = len(characters) if depth >= 100 else ends[bisect_right(ends, place) - 1]
        parts += [characters[start:end].strip() if start else characters[:end].rstrip(), needle]
        start = end
    parts.append(characters[start:].lstrip())
    return " ".join(part for part in parts if part)


def at_period(text: list[int], needle: list[int], depth: float, tokenizer: Tokenizer) -> list[int]:
    """Kamradt's rule: at depth % of the tokens, moved back until the token before is a full stop; 100 appends.

    A full stop is the token "." or SentencePiece's "▁.": the ids that PyramidKV's code lists for Llama-2, Llama-3 and
    Mistral.
    """
    position = len(text)
    if depth != 100:
        ids = tokenizer.convert_tokens_to_ids([".", "▁."])
        periods = {token for token in ids if token not in (None, tokenizer.unk_token_id)}
        position = int(len(text) * (depth / 100))
        while position and text[position - 1] not in periods:
            position -= 1
    return text[:position] + needle + text[position:]


def at_token(text: list[int], needle: list[int], depth: float, tokenizer: Tokenizer) -> list[int]:
    """kvpress's rule: at depth % of the tokens, even in the middle of a word."""
    position = int(len(text) * depth / 100)
    return text[:position] + needle + text[position:]
