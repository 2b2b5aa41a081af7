"""Samples × probes → records: one pass over a context for all probes that observe the same tokens."""

from collections.abc import Iterator, Sequence
from functools import reduce
from operator import or_
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from kvbench.benchmarks import Sample
from kvbench.errors import UserError
from kvbench.evaluation.answer import stop_rule
from kvbench.evaluation.decode import batched, decode, read
from kvbench.evaluation.pending_tasks import missing_contexts
from kvbench.evaluation.prefill_passes import SharedPass, check_layers, num_layers
from kvbench.evaluation.prompts import Prompt
from kvbench.evaluation.record import ModelRun, Run
from kvbench.methods.full import FullKV
from kvbench.models import LoadedModel
from kvbench.prefill import FullPrefill, LayerState, Needs, prefill
from kvbench.probes.base import Observation, Probe
from kvbench.records.schema import build
from kvbench.records.store import Store
from kvbench.utils.signals import unbroken

ProbeRun = Run[LoadedModel, Observation]
Todo = list[tuple[Prompt, Observation]]


def evaluate(run: ProbeRun, samples: Sequence[Sample], store: Store) -> Iterator[dict[str, Any]]:
    """Make and store every missing record of a run of probes; yields each once it is on the disk.

    Questions that share a context share a pass over it; probes of FullKV's answer need one pass per question.
    """
    for prompts in missing_contexts(run, samples, store):
        todo = [(p, o) for p in prompts for o in run.settings if run.key(p.sample, o) not in store.done]
        shared = [(p, o) for p, o in todo if not o.probe.answered]
        single = [[(p, o) for p, o in todo if o.probe.answered and p is prompt] for prompt in prompts]
        for part in filter(None, [shared, *single]):
            for record in records(run, part):
                with unbroken():
                    store.append(record)
                yield record


def records(run: ProbeRun, todo: Todo) -> list[dict[str, Any]]:
    """The records of one pass: over the context, or over prompt and answer for probes that are `answered`."""
    prompt, first = todo[0]
    ids = prompt.context
    if first.probe.answered:
        answer = greedy_answer(run, prompt)
        ids = torch.cat([ids, prompt.question, answer])
    before = len(prompt.context) + len(prompt.question) if first.probe.answered else len(ids)
    chosen = {observation.name: observation for _, observation in todo}
    run.stage.text = f"{prompt.sample.id} · observing {len(ids):,} tokens"
    values = dict(zip(chosen, observe(run.loaded.model, ids, before, list(chosen.values())), strict=True))
    return [
        build(
            "probe",
            {
                "key": run.key(prompt.sample, observation),
                "run": run.id,
                "benchmark": run.benchmark.name,
                "model": run.loaded.spec.name,
                "sample": prompt.sample.id,
                "setting": observation.label,
                "probe": observation.name,
                "parameters": observation.parameters,
                "quantity": observation.probe.quantity,
                "axes": observation.probe.axes,
                **prompt.sample.meta,
                "question": run.question,
                "prompt_tokens": before,
                "answer_tokens": len(ids) - before,
                "layers": layers_of(observation, num_layers(run.loaded.model, len(ids))),
                "values": values[observation.name],
            },
        )
        for prompt, observation in todo
    ]


@torch.inference_mode()
def observe(model: PreTrainedModel, ids: Tensor, prompt: int, observations: Sequence[Observation]) -> list[list[Any]]:
    """The values of each probe in each of its layers, as nested lists; one layer's state is held at a time.

    The first `prompt` of ids [n] are the prompt. Raises UserError if no layer keeps all of them.
    """
    check_layers(model, len(ids), f"probe {observations[0].name!r}")
    count = num_layers(model, len(ids))
    layers_observed = [layers_of(observation, count) for observation in observations]
    values: list[dict[int, list[Any]]] = [{} for _ in observations]
    number = 0

    def observe_layer(layer: LayerState) -> None:
        nonlocal number
        for observation, layers, by_layer in zip(observations, layers_observed, values, strict=True):
            if number in layers:
                probe = observation.probe
                by_layer[number] = rounded(checked_values(probe, probe.observe(layer.requested(probe.needs), prompt)))
        number += 1

    needs = reduce(or_, (observation.probe.needs for observation in observations), Needs())
    prefill(model, ids, needs, observe_layer)
    return [[by_layer[layer] for layer in layers] for layers, by_layer in zip(layers_observed, values, strict=True)]


def checked_values(probe: Probe, values: object) -> Tensor:
    """What a probe observed. Raises UserError for anything but a tensor with an axis."""
    if isinstance(values, Tensor) and values.dim():
        return values
    returned = f"a number, {values.item():g}" if isinstance(values, Tensor) else repr(values)
    raise UserError(f"{type(probe).__name__}.observe returned {returned}: it must be a tensor with axes {probe.axes!r}")


def layers_of(observation: Observation, count: int) -> list[int]:
    """The layers that a probe observes in a model of `count` layers; UserError for one that the model does not have."""
    layers = observation.probe.layers
    if layers is None:
        return list(range(count))
    if beyond := [layer for layer in layers if layer >= count]:
        raise UserError(
            f"probe {observation.name!r}: layer {beyond[0]} is not one of the model's {count} layers: "
            f"probe.{observation.name}.layers takes 0 to {count - 1}"
        )
    return layers


def greedy_answer(run: ModelRun, prompt: Prompt) -> Tensor:
    """FullKV's greedy answer as ids [answer], at least one token: the tokens whose decoding is observed."""
    model, sample, n = run.loaded.model, prompt.sample, len(prompt.context)
    compressed = SharedPass(model, prompt.context, FullPrefill(), Needs()).compress(FullKV(), n)
    cache, logits = batched([compressed.caches]), compressed.logits[None]
    if len(prompt.question):
        logits = read(model, cache, prompt.question)
    stop, _ = stop_rule(run.loaded, sample)
    (answer,) = decode(model, cache, logits, sample.max_new_tokens, stop, at_least_one=True)
    return torch.tensor(answer.tokens)


def rounded(values: Tensor) -> list[Any]:
    """Nested lists of numbers with five significant digits, about the precision of float32 attention."""
    if values.dim() > 1:
        return [rounded(row) for row in values]
    return [float(f"{value:.5g}") for value in values.tolist()]
