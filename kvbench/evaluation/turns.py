"""Conversations in which the model's own answers stay in its caches: one setting at a time, turn after turn."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch

from kvbench.benchmarks import Sample
from kvbench.evaluation.answer import stop_rule
from kvbench.evaluation.decode import batched, decode, read
from kvbench.evaluation.prompts import Prompt
from kvbench.evaluation.record import Answer, MethodRun, Row
from kvbench.evaluation.recorded_steps import recording_of
from kvbench.utils.device import device_peak, wait_for


def conversations(prompts: Sequence[Prompt]) -> list[list[Prompt]]:
    """Prompts of one context with own answers, by conversation; the last turn of each comes first.

    A turn belongs to the conversation that goes on from it.
    """
    groups: list[list[Prompt]] = []
    for prompt in sorted((prompt for prompt in prompts if prompt.sample.own_answers), key=_length, reverse=True):
        for turns in groups:
            if _goes_on(turns[0].sample, prompt.sample) and _length(prompt) < _length(turns[-1]):
                turns.append(prompt)
                break
        else:
            groups.append([prompt])
    return groups


def converse(run: MethodRun, row: Row, turns: Sequence[Prompt]) -> Iterator[tuple[Prompt, Answer]]:
    """Answer one conversation up to its last turn, and yield the turns in `turns` with their answers.

    Missing turns are answered too, since later ones follow them. The question of a yielded prompt is all that was read
    between compression and its answer, earlier answers included. Take them one by one: the next turn changes the
    caches. If logits are not finite, all later turns share that answer.
    """
    model, last = run.loaded.model, turns[0]
    by_index = {_length(prompt): prompt for prompt in turns}
    limits = [turn.max_new_tokens for turn in last.sample.turns] + [last.sample.max_new_tokens]
    cache, logits = batched([row.caches]), row.compressed.logits[None]
    stop, at_least_one = stop_rule(run.loaded, last.sample)
    unread = before = last.question
    recording = recording_of(run.decode_engine, model)
    output = None
    for index, limit in enumerate(limits):
        if output is None or output.generation.not_finite is None:
            started = time.perf_counter()
            if len(unread):
                logits = read(model, cache, unread)
            wait_for(model)
            seconds = time.perf_counter() - started
            (generation,) = decode(model, cache, logits, limit, stop, at_least_one=at_least_one, recording=recording)
            output = Answer(generation, seconds, 1, device_peak(model))
        if index in by_index:
            yield replace(by_index[index], question=before, turns=()), output
        if index < len(last.turns):
            tokens = torch.tensor(output.generation.tokens, dtype=before.dtype)
            unread = torch.cat([tokens[output.generation.steps :], last.turns[index]])
            before = torch.cat([before, tokens, last.turns[index]])


def _goes_on(later: Sample, sample: Sample) -> bool:
    """Whether the turns of `sample` are the first ones of `later`."""
    return later.prompt == sample.prompt and later.turns[: len(sample.turns)] == sample.turns


def _length(prompt: Prompt) -> int:
    """Turns after the first."""
    return len(prompt.sample.turns)
