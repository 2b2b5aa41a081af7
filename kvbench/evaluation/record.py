"""The record of one sample under one setting: scores, reserve ratio, bytes and times; and the run it belongs to."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from kvbench.benchmarks import Benchmark, Sample
from kvbench.cache.base import StoredLayer
from kvbench.cache.decode_bytes import DecodeBytes, DecodeFigures
from kvbench.cache.eviction_cuts import close_cuts
from kvbench.cache.reserve_ratio import Kept
from kvbench.cache.sliding_window import fixed_bytes
from kvbench.errors import UserError
from kvbench.evaluation.generation import Generation
from kvbench.evaluation.prefill_passes import Compressed
from kvbench.evaluation.prompts import AnyModel, Prompt
from kvbench.evaluation.settings import Setting
from kvbench.evaluation.spans import kept_shares
from kvbench.models import LoadedModel
from kvbench.records.schema import build
from kvbench.utils.hashing import digest


@dataclass
class Stage:
    """The current work of a run, for its progress."""

    text: str = ""


class Choice(Protocol):
    """The other half of a record, beside its sample: a method's setting, a probe or an engine."""

    @property
    def label(self) -> str: ...

    @property
    def key(self) -> str: ...

    @property
    def parameters(self) -> str: ...


class Measured(Choice, Protocol):
    """A choice that answers questions: a method's setting or an engine."""

    @property
    def name(self) -> str: ...

    @property
    def ratio(self) -> float | None: ...

    @property
    def budget(self) -> int | None: ...


Chosen = TypeVar("Chosen", bound=Choice, covariant=True)
Loaded = TypeVar("Loaded", bound=AnyModel, covariant=True)


@dataclass(frozen=True)
class Run(Generic[Loaded, Chosen]):
    """The common properties of a folder's records; `identity` is part of every record's key."""

    id: str
    identity: str
    loaded: Loaded  # a LoadedModel, or a TextModel where an engine has the weights
    benchmark: Benchmark
    settings: Sequence[Chosen]
    memory: str = "shared"  # or stream, see kvbench.evaluation.prefill_passes
    question: str = "visible"  # or hidden, see kvbench.evaluation.prompts
    first_token: str = "full"  # or compressed, see kvbench.evaluation.prompts
    chunk: int | None = None  # tokens of a prompt that are prefilled at a time; None: all
    distance: bool = False  # measure each setting's distance from FullKV, see kvbench.evaluation.distance
    # auto: settings decode as one batch if that cannot change their caches; all: every setting does; 1: one by one; a
    # number: at most so many sequences, answers with several seeds included
    batch: str = "auto"
    decode_engine: str = "auto"  # or graph, fused, eager: how a step is launched, see kvbench.evaluation.steps
    stage: Stage = field(default_factory=Stage, compare=False)

    @property
    def sequences(self) -> int | None:
        """The most sequences that decode together; None: one for each setting."""
        return None if self.batch in ("auto", "all") else int(self.batch)

    def key(self, sample: Sample, setting: Choice) -> str:
        return digest(self.identity, sample.id, setting.key)


AnyRun = Run[AnyModel, Choice]
ModelRun = Run[LoadedModel, Choice]
MethodRun = Run[LoadedModel, Setting]


@dataclass
class Row:
    """One setting and its own copy of the compressed caches, which decoding changes."""

    setting: Setting
    prompt: Prompt
    compressed: Compressed
    caches: list[StoredLayer]
    # further copies of the caches, as they are after the prompt
    copies: Iterator[list[StoredLayer]] = field(default_factory=lambda: iter(()))
    recorded: bool = True  # False: FullKV, which has a record already or is no setting of the run


@dataclass(frozen=True)
class Answer:
    """One row's output, and the shared values of its batch."""

    generation: Generation
    question_seconds: float  # reading the hidden question, for the whole batch
    decode_batch: int  # sequences that decoded together
    device_peak: int | None  # bytes of the GPU's allocator; None on a CPU, and where the batch has several rows


@dataclass(frozen=True)
class Failure:
    """A record that could not be made. The run continues with the others and exits with code 1 at its end."""

    key: str
    sample: str
    setting: str
    reason: str

    def __str__(self) -> str:
        return f"no record of sample {self.sample!r} under {self.setting!r}: {self.reason}"


def identity(run: AnyRun, sample: Sample, setting: Measured) -> dict[str, Any]:
    """The first fields of a record: run, benchmark, model, sample and setting."""
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


def full_places(caches: Sequence[StoredLayer]) -> list[int]:
    """The numbers of the layers that the method compressed: the layers that keep keys and values of all tokens."""
    return [number for number, cache in enumerate(caches) if cache.kept is not None]


def per_head(layers: Sequence[Kept]) -> list[list[int] | None] | None:
    """Tokens per head of each layer: None for a layer whose heads keep equally many, or if all layers are such."""
    counts = [None if layer.per_head is None else list(layer.per_head) for layer in layers]
    return counts if any(counts) else None


def reductions(caches: Sequence[StoredLayer]) -> list[int]:
    """How often each layer that is reduced at intervals was reduced while decoding."""
    return [cache.triggers for cache in caches if cache.triggers is not None]


def decode_figures(
    compressed: Compressed, caches: Sequence[StoredLayer], decode_bytes: DecodeBytes, n: int
) -> DecodeFigures:
    """What `caches` held and read of a prompt of n tokens and of decoded tokens; call it after decoding."""
    held, unread = (sum(getattr(cache, name) for cache in caches) for name in ("filled_bytes", "unread_bytes"))
    fixed = compressed.fixed_bytes, fixed_bytes(caches)
    return decode_bytes.figures(held, compressed.peak_bytes, compressed.full_bytes, n, unread, fixed)


def present(**fields: object) -> dict[str, object]:
    """The fields that are not None: records without a value lack the field."""
    return {name: value for name, value in fields.items() if value is not None}


def record(
    run: MethodRun, prompt: Prompt, row: Row, answer: Answer, distance: Mapping[str, float] | None = None
) -> dict[str, Any] | Failure:
    """Score one row's answer and count the prompt's bytes in its caches, after decoding."""
    sample, n = prompt.sample, len(prompt.context)
    setting, compressed, caches = row.setting, row.compressed, row.caches
    output = answer.generation
    failed = partial(Failure, run.key(sample, setting), sample.id, setting.label)
    if output.not_finite is not None:
        return failed(f"the logits of generated token {output.not_finite} are NaN or infinite")
    layers = [cache.kept for cache in caches if cache.kept is not None]
    ratio = compressed.ratio(caches)
    figures = decode_figures(compressed, caches, output.decode_bytes, n)
    device_peaks = [compressed.device_peak, answer.device_peak] if answer.device_peak is not None else []
    prediction = run.loaded.decode(output.tokens)
    places = full_places(caches)
    fields = {
        **identity(run, sample, setting),
        "floored": setting.floored(n, len(layers), prompt.new_tokens),
        **sample.meta,
        **present(context_id=sample.context_id or None, unit=sample.unit or None),
        "question": run.question,
        "compress_at": setting.method.compress_at,
        # a question that is read after compression comes before the first generated token
        "full_cache_tokens": 0 if len(prompt.question) else setting.method.full_cache_tokens,
        "prompt_tokens": n,
        "question_tokens": len(prompt.question),
        "answers": list(sample.answers),
        "prediction": prediction,
        "tokens": output.tokens,
        "scores": run.benchmark.scores(sample, prediction),
        "distance": distance and dict(distance),
        "target_missed": setting.method.missed(ratio, setting.requested_tokens(n) / n),
        **ratio.fields(compressed.window_bytes),
        "r_bytes_16": compressed.r_bytes_16(caches),
        **present(state_bytes=compressed.state_bytes or None),
        "stored_bytes": compressed.stored_bytes(caches),
        "full_bytes": compressed.full_bytes,
        **present(full_layers=None if len(places) == len(caches) else places),
        "nominal_per_layer": [layer.nominal for layer in layers],
        "kept_per_layer": [round(layer.r1 * n, 3) for layer in layers],
        "kept_per_head": per_head(layers),
        **({"spans_kept": kept_shares(prompt.spans, layers, n)} if prompt.spans else {}),  # may be null
        "kept_positions": [layer.positions and layer.positions.text for layer in layers],
        "memory": run.memory,
        "peak_cache_bytes": compressed.count(caches, output.decode_bytes.peak),
        "peak_device_bytes": max(filter(None, device_peaks), default=None),
        "prefill_seconds": compressed.prefill_seconds,
        "compress_seconds": compressed.compress_seconds,
        **present(second_pass_seconds=compressed.second_pass_seconds or None),
        **asdict(figures),
        **present(triggers=max(reductions(caches), default=None)),
        "decode_steps": output.steps,
        "decode_seconds": output.seconds,
        "close_call": output.close_call,
        "close_cuts": close_cuts([layer.cuts for layer in layers]),
        **present(sampling=asdict(sample.sampling) if sample.sampling else None),
        "question_seconds": answer.question_seconds,
        "decode_batch": answer.decode_batch,
        "decode_engine": output.engine,
    }
    try:
        return build("method", fields)
    except UserError as error:  # a score that is no finite number
        return failed(str(error).partition(": ")[2])
