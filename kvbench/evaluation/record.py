"""The record of one sample under one setting: decode, score, count; and the run it belongs to."""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial

import torch

from kvbench.benchmarks import Benchmark, Sample
from kvbench.cache.base import LayerCache
from kvbench.cache.reserve_ratio import ReserveRatio
from kvbench.errors import UserError
from kvbench.evaluation.decode import Generation, generate_batch, read
from kvbench.evaluation.passes import Compressed
from kvbench.evaluation.prompts import Prompt
from kvbench.evaluation.settings import Setting
from kvbench.models import LoadedModel
from kvbench.records.schema import build
from kvbench.utils.device import device_peak, wait_for
from kvbench.utils.hashing import digest


@dataclass(frozen=True)
class Run:
    """What the records of one folder have in common; `identity` enters every record's key."""

    id: str
    identity: str
    loaded: LoadedModel
    benchmark: Benchmark
    settings: Sequence[Setting]
    memory: str = "shared"  # or stream: see evaluation/passes.py
    question: str = "visible"  # or hidden: see evaluation/prompts.py
    batch: str = "auto"  # settings of a sample decode together where that cannot change them; 1: one by one

    def key(self, sample: Sample, setting: Setting) -> str:
        return digest(self.identity, sample.id, setting.key)


@dataclass
class Row:
    """One setting about to decode: what its compression left, and caches that are this decoding's own."""

    setting: Setting
    compressed: Compressed
    caches: list[LayerCache]


@dataclass(frozen=True)
class Failure:
    """A record that could not be made. The run continues with the others and exits with code 1 at its end."""

    key: str
    sample: str
    setting: str
    reason: str

    def __str__(self) -> str:
        return f"no record of sample {self.sample!r} under {self.setting!r}: {self.reason}"


def measure(run: Run, prompt: Prompt, rows: Sequence[Row]) -> list[dict | Failure]:
    """Read the question where it was hidden, decode the rows as one batch, and score: their records."""
    model, sample = run.loaded.model, prompt.sample
    sequences = [row.caches for row in rows]
    started = time.perf_counter()
    if len(prompt.question):
        logits = read(model, sequences, prompt.question)
    else:
        logits = torch.stack([row.compressed.logits for row in rows])
    wait_for(model)
    question_seconds = time.perf_counter() - started
    stop, some = stop_rule(run.loaded, sample)
    outputs = generate_batch(model, sequences, logits, sample.max_new_tokens, stop, at_least_one=some)
    shared = {"question_seconds": question_seconds, "decode_batch": len(rows)}
    # the allocator cannot tell the rows of a batch apart
    peak = device_peak(model) if len(rows) == 1 else None
    return [record(run, prompt, row, output, peak, shared) for row, output in zip(rows, outputs, strict=True)]


def stop_rule(loaded: LoadedModel, sample: Sample) -> tuple[frozenset[int], bool]:
    """The tokens that end an answer to the sample, and whether the answer has at least one token before."""
    if sample.single_stop:
        return frozenset({loaded.tokenizer.eos_token_id} - {None}), True
    newline = {loaded.newline} if sample.stop_at_newline else set()
    return loaded.stop_tokens | newline, sample.stop_at_newline and not sample.may_be_empty


def identity(run: Run, sample: Sample, setting: Setting) -> dict:
    """What every record begins with: which sample of what, under which setting, and by which run."""
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
    }


def record(
    run: Run, prompt: Prompt, row: Row, output: Generation, device_peak: int | None, batch: dict
) -> dict | Failure:
    """The record of one row after decoding; `device_peak` in bytes, None if it was not measured.

    `batch` holds the fields that all rows decoded together share.
    """
    sample, n = prompt.sample, len(prompt.context)
    setting, compressed, caches = row.setting, row.compressed, row.caches
    failed = partial(Failure, run.key(sample, setting), sample.id, setting.label)
    if output.not_finite is not None:
        return failed(f"the logits of generated token {output.not_finite} are NaN or infinite")
    # after decoding, for caches that compress the prompt only then
    layers = [cache.kept for cache in caches]
    stored = compressed.stored_bytes(caches)
    ratio = ReserveRatio.of(layers, stored, compressed.full_bytes)
    device_peaks = [compressed.device_peak, device_peak] if device_peak is not None else []
    prediction = run.loaded.decode(output.tokens)
    fields = {
        **identity(run, sample, setting),
        "floored": setting.floored(n, len(layers)),
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
        "kept_positions": [layer.positions for layer in layers],  # see kvbench.cache.kept_positions
        "memory": run.memory,
        "peak_cache_bytes": compressed.count(caches),
        "peak_device_bytes": max(filter(None, device_peaks), default=None),
        "prefill_seconds": compressed.prefill_seconds,
        "compress_seconds": compressed.compress_seconds,
        "decode_steps": output.steps,
        "decode_seconds": output.seconds,
        "close_call": output.close_call,
        **batch,
    }
    try:
        return build("method", fields)
    except UserError as error:  # a score that is no finite number
        return failed(str(error).partition(": ")[2])
