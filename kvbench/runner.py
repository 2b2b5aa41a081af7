"""Samples × settings → records. The one place that knows benchmarks, models, methods and the store."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import reduce
from operator import or_

import torch

from kvbench.benchmarks import Benchmark, Sample
from kvbench.decode import generate
from kvbench.errors import UserError
from kvbench.models import LoadedModel
from kvbench.prefill import PrefillState, prefill
from kvbench.ratio import ReserveRatio
from kvbench.results.store import Store
from kvbench.settings import Setting, digest


@dataclass(frozen=True)
class Run:
    """What the records of one folder have in common; `identity` enters every record's key."""

    id: str
    identity: str
    loaded: LoadedModel
    benchmark: Benchmark
    settings: Sequence[Setting]

    def key(self, sample: Sample, setting: Setting) -> str:
        return digest(self.identity, sample.id, setting.key)


def evaluate(run: Run, samples: Sequence[Sample], store: Store) -> Iterator[dict]:
    """Make and store every missing record, one prefill per sample; yields each once it is on the disk."""
    for sample in samples:
        todo = [setting for setting in run.settings if run.key(sample, setting) not in store.done]
        if not todo:
            continue
        ids = run.loaded.encode(sample.prompt, sample.chat)
        room = run.loaded.spec.max_length - sample.max_new_tokens
        if len(ids) > room:
            raise UserError(
                f"sample {sample.id!r} has {len(ids)} tokens; {run.loaded.spec.name} takes at most {room} "
                f"with an answer of {sample.max_new_tokens}"
            )
        started = time.perf_counter()
        state = prefill(run.loaded.model, ids, reduce(or_, (setting.method.needs for setting in todo)))
        wait_for(state.logits.device)
        seconds = time.perf_counter() - started
        for setting in todo:
            record = measure(run, sample, setting, state) | {"prefill_seconds": seconds}
            store.append(record)
            yield record


def measure(run: Run, sample: Sample, setting: Setting, state: PrefillState) -> dict:
    """Compress, decode, score: the record of one sample under one setting."""
    budget = setting.tokens(state.n)
    started = time.perf_counter()
    with torch.inference_mode():
        caches = setting.method.compress(state, budget)
    wait_for(state.logits.device)
    compressed = time.perf_counter() - started
    prompt_bytes = [cache.nbytes for cache in caches]
    output = generate(run.loaded.model, caches, state.logits, sample.max_new_tokens, run.loaded.stop_tokens)
    # after decoding, for caches that compress the prompt only then
    layers = [cache.kept for cache in caches]
    stored = sum(
        early if cache.late_bytes is None else cache.late_bytes
        for cache, early in zip(caches, prompt_bytes, strict=True)
    )
    ratio = ReserveRatio.of(layers, stored, state.nbytes)
    prediction = run.loaded.decode(output.tokens)
    return {
        "key": run.key(sample, setting),
        "run": run.id,
        "benchmark": run.benchmark.name,
        "model": run.loaded.spec.name,
        "sample": sample.id,
        "setting": setting.label,
        "method": setting.name,
        "parameters": setting.parameters,
        "ratio": setting.ratio,
        "budget": setting.budget,
        "floored": budget > setting.asked(state.n),
        **sample.meta,
        "question": "visible",
        "compress_at": setting.method.compress_at,
        "full_cache_tokens": setting.method.full_cache_tokens,
        "prompt_tokens": state.n,
        "answers": list(sample.answers),
        "prediction": prediction,
        "tokens": output.tokens,
        "scores": run.benchmark.score(sample, prediction),
        **asdict(ratio),
        "stored_bytes": stored,
        "full_bytes": state.nbytes,
        "nominal_per_layer": [layer.nominal for layer in layers],
        "kept_per_layer": [round(layer.r1 * state.n, 3) for layer in layers],
        "compress_seconds": compressed,
        "decode_steps": output.steps,
        "decode_seconds": output.seconds,
    }


def wait_for(device: torch.device) -> None:
    """Let a GPU finish what was launched, so that a time means the work and not its launch."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
