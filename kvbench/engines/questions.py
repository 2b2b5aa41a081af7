"""Samples in the form that engines read, with the same tokens and stop rules as for methods."""

import math
from collections.abc import Sequence
from typing import cast

import torch

from kvbench.benchmarks import Sample
from kvbench.engines.base import ROUNDING, CannotAnswer, Completion, Message, Question, Scored, Session
from kvbench.errors import UserError
from kvbench.evaluation.answer import stop_rule
from kvbench.evaluation.prompts import tokenise
from kvbench.models import TextModel

# Servers' names for the end of an answer by a stop token, a stop text, or the model's end of text.
STOPPED = frozenset({"stop", "eos", "eos_token", "stop_sequence", "end_turn"})


def question(reader: TextModel, sample: Sample) -> Question:
    """The prompt, with later turns and the expected answers between them. Raises UserError if it does not fit."""
    prompt = tokenise(reader, sample, "visible")
    stops, at_least_one = stop_rule(reader, sample)
    ids = torch.cat([prompt.context, prompt.question]).tolist()
    text = prompt.text
    if sample.turns:
        text += reader.tokenizer.decode(prompt.question.tolist())
    newline = sample.stop_at_newline and not sample.single_stop
    ends = stops, at_least_one, newline
    return Question(sample.id, ids, text, sample.max_new_tokens, *ends, sample.sampling, messages_of(sample))


def is_chat(sample: Sample) -> bool:
    """Whether messages alone make the model's input: no beginning of the answer is given, and no text is scored."""
    return sample.chat and not sample.prefix and not sample.continuation


def messages_of(sample: Sample) -> list[Message]:
    """A chat's messages, with the expected answers between later turns; [] for a sample that is not a chat."""
    if not is_chat(sample):
        return []
    later = [message for turn in sample.turns for message in (("assistant", turn.answer), ("user", turn.question))]
    return [Message(*pair) for pair in (*sample.history, ("user", sample.prompt), *later)]


def check_answer(question: Question, completion: Completion, reader: TextModel, chats: bool) -> None:
    """Raise CannotAnswer for an answer that is not whole, or one to other tokens than kvbench sent; chats: a chat's
    template is the server's, so its tokens differ. Raises UserError for another object than a completion."""
    check_form(completion)
    if not chats:
        check_count(question, completion)
    check_whole(question, completion, reader)


def check_form(completion: object) -> None:
    """Raise UserError for anything but a completion with a text, and token ids if it has tokens."""
    if not isinstance(completion, Completion):
        raise UserError(f"Session.complete returned {completion!r}: it must be a Completion")
    text, tokens = cast(object, completion.text), completion.tokens
    if not isinstance(text, str):
        raise UserError(f"Session.complete returned a Completion with text={text!r}: it must be a text")
    if tokens is not None and not (isinstance(tokens, list | tuple) and all(type(token) is int for token in tokens)):
        raise UserError(f"Session.complete returned a Completion with tokens={tokens!r}: a list of integers is needed")


def asked_again(session: Session, question: Question, reader: TextModel, chats: bool) -> str:
    """The text of another answer to a question. Raises CannotAnswer as `check_answer` does."""
    completion = session.complete(question, 0)
    check_answer(question, completion, reader, chats)
    return ended(question, completion, reader)[1]


def check_count(question: Question, completion: Completion) -> None:
    """Raise CannotAnswer if the engine read more or fewer tokens than kvbench sent."""
    counted, sent = completion.prompt_tokens, len(question.ids)
    if counted is None:
        raise CannotAnswer("the engine did not report the prompt's number of tokens, so it may have read other tokens")
    if counted != sent:
        raise CannotAnswer(f"the engine counts {counted:,} tokens in the prompt, and kvbench {sent:,}")


def check_whole(question: Question, completion: Completion, reader: TextModel) -> None:
    """Raise CannotAnswer for an answer that was cut or is longer than allowed, and for tokens that do not fit its text.

    Too many token ids are no fault: `until_stop` cuts them.
    """
    tokens, finish = completion.tokens, completion.finish
    generated = completion.generated if tokens is None else len(tokens)
    # a token that ends the answer may be counted behind the last that is allowed: the text does not have it
    most = question.max_new_tokens + (finish in STOPPED)
    if tokens is None and generated is not None and generated > most:
        raise CannotAnswer(
            f"the server counts {generated:,} tokens in the answer, and at most {question.max_new_tokens:,} are allowed"
        )
    if finish == "length":
        if generated is None:
            raise CannotAnswer("the answer ended by its length, and the server does not report its number of tokens")
        if generated < question.max_new_tokens:
            raise CannotAnswer(
                f"the answer was cut after {generated} of {question.max_new_tokens} tokens (finish_reason 'length'): "
                "the server's context is full: -c of llama-server, which -np divides, or --max-model-len"
            )
        if tokens is None and not completion.text:
            raise CannotAnswer(
                f"the answer's {generated} tokens have no text: the server may return a chain of thought separately, "
                "and the answer did not begin"
            )
    elif finish not in STOPPED:
        raise CannotAnswer(f"the answer ended with finish_reason {finish!r}, before its end")
    if any("\ud800" <= character <= "\udfff" for character in completion.text):
        raise CannotAnswer("the answer's text has halves of characters (surrogates)")
    if tokens is not None:
        _check_tokens(tokens, completion, reader)


def _check_tokens(tokens: Sequence[int], completion: Completion, reader: TextModel) -> None:
    """Raise CannotAnswer for tokens that are not in the vocabulary or have another text, and for missing
    log-probabilities."""
    size = len(reader.tokenizer)
    if reader.config is not None:
        size = max(size, reader.config.get_text_config().vocab_size)
    if wrong := next((token for token in tokens if not 0 <= token < size), None):
        raise CannotAnswer(f"the answer has a token {wrong}, but the vocabulary has {size:,} tokens")
    text, decoded = (_visible(each, reader) for each in (completion.text, reader.decode(list(tokens))))
    if text and not _agree(text, decoded):
        raise CannotAnswer("the answer's text is not the text of its token ids")
    if completion.top and len(completion.top) < len(tokens):
        raise CannotAnswer(f"the answer has log-probabilities of {len(completion.top)} of its {len(tokens)} tokens")


def _visible(text: str, reader: TextModel) -> str:
    """The text without parts that servers omit or replace: white space, special tokens, parts of characters."""
    for special in reader.tokenizer.all_special_tokens:
        text = text.replace(special, "")
    return "".join(text.replace("\ufffd", "").split())


def _agree(text: str, other: str) -> bool:
    """Whether one text begins the other: a server may omit the text that ended the answer."""
    return bool(text and other) and (text.startswith(other) or other.startswith(text))


def check_scored(question: Question, tokens: Sequence[int], scored: Scored) -> None:
    """Raise CannotAnswer if the engine read other tokens than prompt and text, or did not score the whole text."""
    read, sent = scored.read, len(question.ids) + len(tokens)
    if read != sent:
        raise CannotAnswer(f"the engine counts {read} tokens in prompt and text, and kvbench {sent}")
    if len(scored.logprobs) != len(tokens):
        raise CannotAnswer(f"the engine scored {len(scored.logprobs)} of {len(tokens)} tokens")
    for place, value in enumerate(scored.logprobs):
        if not math.isfinite(value) or value > ROUNDING:
            raise CannotAnswer(f"the engine gives {value} as log-probability of token {place} of the text")


def ended(question: Question, completion: Completion, reader: TextModel) -> tuple[list[int] | None, str]:
    """Tokens and text of an answer, ended by kvbench's rules; tokens are None if the engine gave none."""
    if completion.tokens is None:
        return None, ended_text(question, completion.text)
    tokens = until_stop(completion.tokens, question)
    return tokens, reader.decode(tokens)


def until_stop(tokens: Sequence[int], question: Question) -> list[int]:
    """The tokens before the first of `stops`, at most max_new_tokens."""
    tokens = list(tokens)[: question.max_new_tokens]
    return tokens[: next((place for place, token in enumerate(tokens) if token in question.stops), len(tokens))]


def ended_text(question: Question, text: str) -> str:
    """The text up to its first line end if that ends the answer; at least one character if it may not be empty."""
    if not question.newline:
        return text
    end = text.find("\n", 1 if question.at_least_one else 0)
    return text if end < 0 else text[:end]
