"""The record of one sample under one setting: decode, score, count; and the run it belongs to."""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from kvbench.benchmarks import Benchmark, Sample
from kvbench.cache.base import LayerCache
from kvbench.decode import generate, read
from kvbench.models import LoadedModel
from kvbench.passes import Compressed, device_peak, num_layers, wait_for
from kvbench.prompts import Prompt
from kvbench.ratio import ReserveRatio
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
    question: str = "visible"  # hidden: see kvbench.prompts

    def key(self, sample: Sample, setting: Setting) -> str:
        return digest(self.identity, sample.id, setting.key)


def measure(run: Run, prompt: Prompt, setting: Setting, compressed: Compressed, caches: Sequence[LayerCache]) -> dict:
    """Read the question where it was hidden, decode from `caches`, and score: a record.

    `caches` hold `compressed`'s prompt, and are this decoding's own.
    """
    model, sample, n = run.loaded.model, prompt.sample, len(prompt.context)
    prompt_bytes = [cache.nbytes for cache in caches]
    started = time.perf_counter()
    logits = read(model, caches, prompt.question) if len(prompt.question) else compressed.logits
    wait_for(model)
    question_seconds = time.perf_counter() - started
    stop = run.loaded.stop_tokens | ({run.loaded.newline} if sample.stop_at_newline else set())
    output = generate(model, caches, logits, sample.max_new_tokens, stop, at_least_one=sample.stop_at_newline)
    # after decoding, for caches that compress the prompt only then
    layers = [cache.kept for cache in caches]
    stored = sum(
        early if cache.late_bytes is None else cache.late_bytes
        for cache, early in zip(caches, prompt_bytes, strict=True)
    )
    ratio = ReserveRatio.of(layers, stored, compressed.full_bytes)
    device_peaks = [peak for peak in (compressed.device_peak, device_peak(model)) if peak is not None]
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
        "floored": setting.tokens(n, num_layers(model)) > setting.asked(n),
        **sample.meta,
        "question": run.question,
        "compress_at": setting.method.compress_at,
        # generated tokens; where the question was hidden, it came between
        "full_cache_tokens": 0 if len(prompt.question) else setting.method.full_cache_tokens,
        "prompt_tokens": n,
        "question_tokens": len(prompt.question),
        "answers": list(sample.answers),
        "prediction": prediction,
        "tokens": output.tokens,
        "scores": run.benchmark.score(sample, prediction),
        **asdict(ratio),
        "stored_bytes": stored,
        "full_bytes": compressed.full_bytes,
        "nominal_per_layer": [layer.nominal for layer in layers],
        "kept_per_layer": [round(layer.r1 * n, 3) for layer in layers],
        "memory": run.memory,
        "peak_cache_bytes": compressed.count(caches),
        "peak_device_bytes": max(device_peaks, default=None),
        "prefill_seconds": compressed.prefill_seconds,
        "compress_seconds": compressed.compress_seconds,
        "question_seconds": question_seconds,
        "decode_steps": output.steps,
        "decode_seconds": output.seconds,
    }
