"""Whether the model that an engine has loaded is the one whose tokenizer and configuration kvbench reads."""

from collections.abc import Mapping, Sequence

from kvbench.errors import UserError
from kvbench.models import TextModel

OTHER = 0.01  # share of tokens whose text may be another one: converters rewrite a few


def check_shape(label: str, shape: Mapping[str, int], reader: TextModel) -> None:
    """Raise UserError where the engine's sizes, by the names of configurations, are not the model's."""
    text = reader.config.get_text_config(decoder=True)
    for name, size in shape.items():
        if (ours := getattr(text, name, None)) not in (None, size):
            differs(label, reader, f"has {name} {size:,}", f"has {ours:,}")


def check_size(label: str, size: int, reader: TextModel) -> None:
    """Raise UserError where the engine's vocabulary has another size than the model's or its tokenizer's."""
    ours = reader.config.get_text_config().vocab_size  # can be larger than the tokenizer's
    if size not in (ours, len(reader.tokenizer)):
        differs(label, reader, f"has {size:,} tokens in its vocabulary", f"has {ours:,}")


def check_tokens(label: str, texts: Sequence[str], reader: TextModel) -> None:
    """Raise UserError where the engine's tokens, by their numbers, are written otherwise than the tokenizer's."""
    ours: list[str | None] = reader.tokenizer.convert_ids_to_tokens(list(range(len(reader.tokenizer))))
    _check(label, texts, ours, reader)


def check_decoded(label: str, texts: Sequence[str], reader: TextModel) -> None:
    """As `check_tokens`, for an engine that knows what its tokens stand for and not how they are written."""
    ours = reader.tokenizer.batch_decode([[number] for number in range(len(reader.tokenizer))])
    _check(label, [_whole(text) for text in texts], [_whole(text) for text in ours], reader)


def _whole(text: str) -> str | None:
    """A token's text without the space at its beginning, which decoders write as ▁ or leave out; None of a part of a
    character."""
    return None if "\ufffd" in text else text.replace("▁", " ").strip()


def _check(label: str, theirs: Sequence[str | None], ours: Sequence[str | None], reader: TextModel) -> None:
    """Tokens that were added to a vocabulary are left out: converters write them in forms of their own."""
    added = reader.tokenizer.added_tokens_decoder
    pairs = {number: pair for number, pair in enumerate(zip(theirs, ours, strict=False)) if number not in added}
    known = {number: pair for number, pair in pairs.items() if None not in pair}
    other = [number for number, (one, another) in known.items() if one != another]
    if len(other) > OTHER * len(known):
        first = other[0]
        differs(label, reader, f"has the token {first} {theirs[first]!r}", f"{ours[first]!r}")


def differs(label: str, reader: TextModel, theirs: str, ours: str) -> None:
    raise UserError(f"{label}: the engine's model {theirs}, and {reader.spec.name} {ours}: they are not the same model")
