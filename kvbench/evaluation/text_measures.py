"""The score of a text: which of its tokens are read, and measures of their log-likelihood."""

import math
from collections.abc import Sequence

from kvbench.benchmarks import Sample
from kvbench.benchmarks.text import LONGEST
from kvbench.evaluation.prompts import AnyModel

REPLACED = "\ufffd"  # what decoding makes of bytes that are no character


def text_tokens(reader: AnyModel, sample: Sample) -> list[int]:
    """The tokens of a sample's continuation, of which all but the first are scored.

    The first one is predicted by the prompt's own last logits, which most methods compute with the uncompressed cache.
    """
    return reader.plain_tokens(sample.continuation)[:LONGEST]


def text_measures(reader: AnyModel, tokens: Sequence[int], loglik: float) -> dict[str, float]:
    """Nats per token, and bits per byte of their text, for scored tokens and their log-likelihood in nats."""
    text = reader.tokenizer.decode([*tokens])
    size = len(text.encode())
    if text.startswith(REPLACED) and reader.plain_tokens(text) != [*tokens]:
        # the token before has the first bytes of a character: each of the others is decoded as one of three bytes
        size -= 2 * (len(text) - len(text.lstrip(REPLACED)))
    return {"nll": -loglik / len(tokens), "bits_per_byte": -loglik / math.log(2) / size}
