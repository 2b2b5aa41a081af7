"""Checks that an engine has loaded the model whose tokenizer and configuration kvbench reads."""

from collections.abc import Mapping, Sequence

from kvbench.errors import UserError
from kvbench.models import TextModel

REWRITTEN = 0.01  # share of tokens that may have another text: converters rewrite a few


def check_shape(label: str, shape: Mapping[str, int], reader: TextModel) -> None:
    """Raise UserError if the engine's sizes, by their names in configurations, are not the model's."""
    text = reader.config.get_text_config(decoder=True)
    for name, size in shape.items():
        if (expected := getattr(text, name, None)) not in (None, size):
            differs(label, reader, f"has {name} {size:,}", f"has {expected:,}")


def check_size(label: str, size: int, reader: TextModel) -> None:
    """Raise UserError if the engine's vocabulary has another size than the model's and the tokenizer's."""
    expected = reader.config.get_text_config().vocab_size  # can be larger than the tokenizer's
    if size not in (expected, len(reader.tokenizer)):
        differs(label, reader, f"has {size:,} tokens in its vocabulary", f"has {expected:,}")


def check_tokens(label: str, texts: Sequence[str], reader: TextModel) -> None:
    """Raise UserError if the engine's tokens, in order of their ids, are spelled differently from the tokenizer's."""
    expected: list[str | None] = reader.tokenizer.convert_ids_to_tokens(list(range(len(reader.tokenizer))))
    _check(label, texts, expected, reader)


def check_decoded(label: str, texts: Sequence[str], reader: TextModel) -> None:
    """As `check_tokens`, for an engine that gives the texts of its tokens but not their spelling."""
    expected = reader.tokenizer.batch_decode([[number] for number in range(len(reader.tokenizer))])
    _check(label, [_whole(text) for text in texts], [_whole(text) for text in expected], reader)


def _whole(text: str) -> str | None:
    """A token's text without a space at its beginning, which decoders write as ▁ or omit; None for a part of a
    character."""
    return None if "\ufffd" in text else text.replace("▁", " ").strip()


def _check(label: str, of_engine: Sequence[str | None], expected: Sequence[str | None], reader: TextModel) -> None:
    """Compare all tokens except those that were added to the vocabulary, which converters write in other forms."""
    added = reader.tokenizer.added_tokens_decoder
    pairs = {number: pair for number, pair in enumerate(zip(of_engine, expected, strict=False)) if number not in added}
    known = {number: pair for number, pair in pairs.items() if None not in pair}
    different = [number for number, (text, expected_text) in known.items() if text != expected_text]
    if len(different) > REWRITTEN * len(known):
        first = different[0]
        differs(label, reader, f"has the token {first} {of_engine[first]!r}", f"{expected[first]!r}")


def differs(label: str, reader: TextModel, of_engine: str, expected: str) -> None:
    raise UserError(
        f"{label}: the engine's model {of_engine}, and {reader.spec.name} {expected}: they are not the same model"
    )
