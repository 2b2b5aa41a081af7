"""Samples × settings → records. The one place that knows benchmarks, models, methods and the store."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import reduce
from operator import or_

from torch import Tensor

from kvbench.benchmarks import Benchmark, Sample
from kvbench.decode import generate
from kvbench.errors import UserError
from kvbench.models import LoadedModel
from kvbench.passes import SharedPass, StreamedPass, device_peak, num_layers
from kvbench.pruning import Pruning
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
    memory: str = "shared"  # stream: see kvbench.passes

    def key(self, sample: Sample, setting: Setting) -> str:
        return digest(self.identity, sample.id, setting.key)


def evaluate(run: Run, samples: Sequence[Sample], store: Store) -> Iterator[dict]:
    """Make and store every missing record, one prefill for all settings that can share it.

    Yields each record once it is on the disk.
    """
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
        for pruning, settings in by_pass(todo, len(ids), num_layers(run.loaded.model)).items():
            for record in records(run, sample, ids, pruning, settings):
                store.append(record)
                yield record


def by_pass(settings: Sequence[Setting], n: int, num_layers: int) -> dict[Pruning | None, list[Setting]]:
    """The settings grouped by the pass over a prompt of n tokens that they can share."""
    groups: dict[Pruning | None, list[Setting]] = {}
    for setting in settings:
        pruning = setting.method.pruning(n, num_layers, setting.tokens(n, num_layers))
        groups.setdefault(pruning, []).append(setting)
    return groups


def records(
    run: Run, sample: Sample, ids: Tensor, pruning: Pruning | None, settings: Sequence[Setting]
) -> Iterator[dict]:
    """The records of settings that share a pass, which is freed when this ends."""
    model = run.loaded.model
    if run.memory == "stream":
        source = StreamedPass(model, ids, pruning)
    else:
        source = SharedPass(model, ids, pruning, reduce(or_, (setting.method.needs for setting in settings)))
    for setting in settings:
        yield measure(run, sample, setting, source, len(ids))


def measure(run: Run, sample: Sample, setting: Setting, source: SharedPass | StreamedPass, n: int) -> dict:
    """Compress, decode, score: the record of one sample of n tokens under one setting."""
    model = run.loaded.model
    budget = setting.tokens(n, num_layers(model))
    prompt = source.compress(setting.method, budget)
    prompt_bytes = [cache.nbytes for cache in prompt.caches]
    output = generate(model, prompt.caches, prompt.logits, sample.max_new_tokens, run.loaded.stop_tokens)
    # after decoding, for caches that compress the prompt only then
    layers = [cache.kept for cache in prompt.caches]
    stored = sum(
        early if cache.late_bytes is None else cache.late_bytes
        for cache, early in zip(prompt.caches, prompt_bytes, strict=True)
    )
    ratio = ReserveRatio.of(layers, stored, prompt.full_bytes)
    device_peaks = [peak for peak in (prompt.device_peak, device_peak(model)) if peak is not None]
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
        "floored": budget > setting.asked(n),
        **sample.meta,
        "question": "visible",
        "compress_at": setting.method.compress_at,
        "full_cache_tokens": setting.method.full_cache_tokens,
        "prompt_tokens": n,
        "answers": list(sample.answers),
        "prediction": prediction,
        "tokens": output.tokens,
        "scores": run.benchmark.score(sample, prediction),
        **asdict(ratio),
        "stored_bytes": stored,
        "full_bytes": prompt.full_bytes,
        "nominal_per_layer": [layer.nominal for layer in layers],
        "kept_per_layer": [round(layer.r1 * n, 3) for layer in layers],
        "memory": run.memory,
        "peak_cache_bytes": prompt.count(),
        "peak_device_bytes": max(device_peaks, default=None),
        "prefill_seconds": prompt.prefill_seconds,
        "compress_seconds": prompt.compress_seconds,
        "decode_steps": output.steps,
        "decode_seconds": output.seconds,
    }
