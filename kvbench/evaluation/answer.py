"""Answers to one question from the compressed caches of several settings, decoded as one batch."""

import time
from collections.abc import Sequence

import torch

from kvbench.benchmarks import Sample
from kvbench.evaluation.decode import batched, decode, read
from kvbench.evaluation.prompts import AnyModel, Prompt
from kvbench.evaluation.record import Answer, MethodRun, Row
from kvbench.evaluation.recorded_steps import recording_of
from kvbench.evaluation.sampling import Sampler
from kvbench.utils.device import device_peak, wait_for


def answer(run: MethodRun, prompt: Prompt, rows: Sequence[Row]) -> list[Answer]:
    """Read the question if it was hidden, and decode the rows as one batch.

    `prompt` is the prompt of all rows, or the first of several that differ only in the seeds of their answers.
    """
    model, sample = run.loaded.model, prompt.sample
    cache = batched([row.caches for row in rows])
    started = time.perf_counter()
    if len(prompt.question):
        logits = read(model, cache, prompt.question)
    else:
        logits = torch.stack([row.compressed.logits for row in rows])
    wait_for(model)
    question_seconds = time.perf_counter() - started
    stop, at_least_one = stop_rule(run.loaded, sample)
    new_tokens = 1 if sample.continuation else sample.max_new_tokens  # a text that is scored needs no answer
    sampler = None
    if sample.sampling is not None:
        sampler = Sampler([sampling for row in rows if (sampling := row.prompt.sample.sampling) is not None])
    recording = recording_of(run.decode_engine, model)
    outputs = decode(model, cache, logits, new_tokens, stop, sampler, at_least_one=at_least_one, recording=recording)
    # the allocator cannot tell the rows of a batch apart
    peak = device_peak(model) if len(rows) == 1 else None
    return [Answer(output, question_seconds, len(rows), peak) for output in outputs]


def stop_rule(loaded: AnyModel, sample: Sample) -> tuple[frozenset[int], bool]:
    """The tokens that end an answer to the sample, and whether it has at least one token before them."""
    if sample.single_stop:
        return frozenset({loaded.tokenizer.eos_token_id} - {None}), True
    newline = {loaded.newline} if sample.stop_at_newline else set()
    return loaded.stop_tokens | newline, sample.stop_at_newline and not sample.may_be_empty
