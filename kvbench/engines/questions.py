"""Samples as an engine reads them, with the same tokens and stop rules as methods have."""

import math
from collections.abc import Sequence

import torch

from kvbench.benchmarks import Sample
from kvbench.engines.base import CannotAnswer, Completion, Question, Scored
from kvbench.evaluation.answer import stop_rule
from kvbench.evaluation.prompts import tokenise
from kvbench.models import TextModel

ROUNDING = 1e-3  # by which a log-probability may exceed 0


def question(reader: TextModel, sample: Sample) -> Question:
    """The prompt, with later turns and the expected answers between them. Raises UserError where it does not fit."""
    prompt = tokenise(reader, sample, "visible")
    stops, at_least_one = stop_rule(reader, sample)
    ids = torch.cat([prompt.context, prompt.question]).tolist()
    text = reader.render(sample.prompt, sample.chat, sample.prefix, sample.history)
    if sample.turns:
        text += reader.tokenizer.decode(prompt.question.tolist())
    newline = sample.stop_at_newline and not sample.single_stop
    return Question(sample.id, ids, text, sample.max_new_tokens, stops, at_least_one, newline, sample.sampling)


def check_count(question: Question, completion: Completion) -> None:
    """Raise CannotAnswer where the engine read more or fewer tokens than kvbench sent."""
    counted, ours = completion.prompt_tokens, len(question.ids)
    if counted is None:
        raise CannotAnswer("the engine did not say how many tokens the prompt has, so it may have read another one")
    if counted != ours:
        raise CannotAnswer(f"the engine counts {counted:,} tokens in the prompt, and kvbench {ours:,}")


def check_scored(question: Question, tokens: Sequence[int], scored: Scored) -> None:
    """Raise CannotAnswer where the engine read other tokens than prompt and text, or did not score all of the text."""
    read, ours = scored.read, len(question.ids) + len(tokens)
    if read != ours:
        raise CannotAnswer(f"the engine counts {read} tokens in prompt and text, and kvbench {ours}")
    if len(scored.logprobs) != len(tokens):
        raise CannotAnswer(f"the engine scored {len(scored.logprobs)} of {len(tokens)} tokens")
    for place, value in enumerate(scored.logprobs):
        if not math.isfinite(value) or value > ROUNDING:
            raise CannotAnswer(f"the engine gives {value} as log-probability of token {place} of the text")


def ended(question: Question, completion: Completion, reader: TextModel) -> tuple[list[int] | None, str]:
    """Tokens and text of an answer up to where kvbench's rules end it; tokens are None where the engine gave none."""
    if completion.tokens is None:
        return None, ended_text(question, completion.text)
    tokens = until_stop(completion.tokens, question)
    return tokens, reader.decode(tokens)


def until_stop(tokens: Sequence[int], question: Question) -> list[int]:
    """The tokens before the first of `stops`, at most max_new_tokens."""
    tokens = list(tokens)[: question.max_new_tokens]
    return tokens[: next((place for place, token in enumerate(tokens) if token in question.stops), len(tokens))]


def ended_text(question: Question, text: str) -> str:
    """A text up to its first line end, where that ends the answer; at least one character where it may not be empty."""
    if not question.newline:
        return text
    end = text.find("\n", 1 if question.at_least_one else 0)
    return text if end < 0 else text[:end]
