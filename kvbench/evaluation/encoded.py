"""A rendered prompt as token ids with each token's characters: tokenised whole, or with a separate question."""

from typing import NamedTuple

from kvbench.benchmarks import Sample
from kvbench.errors import UserError
from kvbench.models import LoadedModel, TextModel
from kvbench.utils.chat_template import mark_beside


class Encoded(NamedTuple):
    ids: list[int]
    offsets: list[tuple[int, int]]  # the characters of each token; empty unless requested
    apart: int = 0  # tokens before a question that was tokenised separately; 0: no such question


def encoded(loaded: LoadedModel | TextModel, sample: Sample, text: str, offsets: bool = False) -> Encoded:
    """The tokens of `text`, the sample's rendered prompt.

    With `question_apart` the text is split before the question and both parts are tokenised, so that no token has
    characters of both.
    """
    options = {"return_offsets_mapping": True} if offsets else {}
    if not sample.question_apart:
        tokens = loaded.tokenise(text, sample.chat, **options)
        return Encoded(tokens["input_ids"], tokens["offset_mapping"] if offsets else [])
    before = before_question(loaded, sample, text)
    head = loaded.tokenise(text[:before], sample.chat, **options)
    tail = loaded.tokenizer(text[before:], add_special_tokens=False, **options)
    places = []
    if offsets:
        later = [(before + start, before + end) for start, end in tail["offset_mapping"]]
        places = [*head["offset_mapping"], *later]
    return Encoded(head["input_ids"] + tail["input_ids"], places, len(head["input_ids"]))


def before_question(loaded: LoadedModel | TextModel, sample: Sample, text: str) -> int:
    """Number of characters of the rendered text before the question.

    Raises UserError if the sample does not separate its question from its context.
    """
    if not sample.question and not sample.question_apart:
        raise UserError(f"sample {sample.id!r} does not separate its question from its context: use question=visible")
    before = context(sample)
    mark = mark_beside(before, *messages_before(sample))
    head, written, _ = loaded.render(before + mark, sample.chat, history=sample.history).partition(mark)
    if not written or not text.startswith(head) or not (before.strip() or sample.history):
        raise UserError(f"sample {sample.id!r}: there is no context before the question to compress")
    return len(head)


def messages_before(sample: Sample) -> list[str]:
    """The texts of a chat's messages before the prompt."""
    return [content for _, content in sample.history]


def context(sample: Sample) -> str:
    """The prompt before its question."""
    return sample.prompt.removesuffix(sample.question)
