"""A configuration's request, with every check that needs no loaded model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Literal

from kvbench.benchmarks import Benchmark, Serve, Speed, Text
from kvbench.benchmarks.speed import LARGEST
from kvbench.configuration import Configuration
from kvbench.errors import UserError, unknown
from kvbench.evaluation.prompts import AnyModel
from kvbench.evaluation.record import AnyRun, Choice, Run
from kvbench.evaluation.settings import Setting, settings_of
from kvbench.methods.heads.head_scores import calibrations
from kvbench.metrics.aggregate import COLUMNS
from kvbench.metrics.versions import VERSIONS
from kvbench.models import ModelSpec
from kvbench.ops.operator import Kernels
from kvbench.probes import build_probes
from kvbench.runner.engines import check_serving, requested_engines
from kvbench.runner.kernels import check_computing
from kvbench.runner.kinds import Kind, OfEngines, OfMethods, OfProbes, OfServing, OfSpeed
from kvbench.runner.shards import Shard
from kvbench.utils.extras import require
from kvbench.utils.host import free_memory
from kvbench.utils.targets import build


@dataclass(frozen=True)
class Request:
    """What a configuration requests, built and checked: a run without its loaded model."""

    kind: Kind
    settings: Sequence[Choice]
    benchmark: Benchmark
    spec: ModelSpec
    distance: bool  # whether each setting's distance from FullKV is measured
    kernels: Kernels
    shard: Shard
    limit: int | None  # samples of each task; None: all
    memory: str  # this and the next five as in Run
    question: str
    first_token: str
    chunk: int | None
    batch: str
    decode_engine: str
    part: str = ""  # the name of this run in the progress of a command with several

    def run(self, run_id: str, identity: str, loaded: AnyModel) -> AnyRun:
        """The run that makes the records, with a loaded model."""
        return Run(
            run_id,
            identity,
            loaded,
            self.benchmark,
            self.settings,
            memory=self.memory,
            question=self.question,
            first_token=self.first_token,
            chunk=self.chunk,
            distance=self.distance,
            batch=self.batch,
            decode_engine=self.decode_engine,
        )


def build_request(cfg: Configuration) -> Request:
    """Build what a configuration requests. Raises UserError with the first mistake found.

    kvbench.runner.prerequisites has checked that this machine lacks nothing.
    """
    benchmark = build_benchmark(cfg.benchmark)
    kind, settings = choices_of(cfg, benchmark)
    if cfg.distance is True and not kind.compares:
        part = "probe=" if cfg.probe else f"benchmark={benchmark.name}"
        raise UserError(f"distance=true: {part} measures no answer's distance from FullKV: leave one of the two out")
    request = Request(
        kind,
        settings,
        benchmark,
        cfg.model,
        kind.compares and measures_distance(cfg.distance, cfg.memory, benchmark),
        cfg.kernels,
        Shard(cfg.shard, cfg.shards),
        limit=cfg.limit,
        memory=cfg.memory,
        question=cfg.question,
        first_token=cfg.first_token,
        chunk=cfg.prefill.chunk,
        batch=cfg.decode.batch,
        decode_engine=cfg.decode.engine,
    )
    check(request.settings, request.benchmark, request.spec)
    if not isinstance(kind, OfEngines):
        check_passes(request)
    return request


def choices_of(cfg: Configuration, benchmark: Benchmark) -> tuple[Kind, Sequence[Choice]]:
    """The settings, probes or engines of a configuration, and the kind of their records."""
    if cfg.engine:
        engines = requested_engines(cfg, benchmark)
        if not isinstance(benchmark, Serve):
            return OfEngines(), engines
        check_serving(engines)
        return OfServing(), engines
    if isinstance(benchmark, Serve):
        raise UserError("benchmark=serve loads servers: engine=openai engine.url=…, or another engine, has them")
    settings = settings_of(cfg)  # before probes: a run of probes, which uses no methods, still refuses bad values
    observations = build_probes(cfg.probe)
    if observations:
        check_probes(cfg.memory, benchmark)
    kind = OfSpeed(cfg.experiment) if isinstance(benchmark, Speed) else OfProbes() if observations else OfMethods()
    return kind, observations or settings


def check_probes(memory: str, benchmark: Benchmark) -> None:
    """Refuse what probes, which observe a whole prefill in place of methods, would leave undone."""
    if isinstance(benchmark, Speed):
        raise UserError("benchmark=speed measures methods, and probe= observes prompts in their place: leave one out")
    if memory == "stream":
        raise UserError(
            "memory=stream frees layers that a method has compressed, and probe= compresses none: leave one out"
        )


def check_passes(request: Request) -> None:
    """Raise UserError for what kvbench's own passes over a prompt cannot do for the settings or probes."""
    methods = [choice for choice in request.settings if isinstance(choice, Setting)]
    check_calibrations(methods, request.spec)
    if isinstance(request.benchmark, Speed):
        check_speed(request.question, request.memory, request.first_token, request.batch)
        check_batches(request.benchmark, request.spec)
    if methods:
        check_memory(request.memory, methods)
    check_chunk(request.chunk, request.memory, methods, request.benchmark, not methods)
    check_computing(request.kernels, request.decode_engine, request.spec)


def build_benchmark(node: Mapping[str, object]) -> Benchmark:
    """The benchmark. Raises UserError for one without name or metrics, or with other values for them than texts, or
    with metrics that have no version, and if its scores cannot be computed here."""
    benchmark = build(node, "benchmark", Benchmark)
    if lacking := [name for name in ("name", "metrics") if not hasattr(benchmark, name)]:
        kind = type(benchmark)
        raise UserError(f"benchmark: {kind.__name__} lacks {', '.join(lacking)}, which {kind.guide} describes")
    named: object = benchmark.name
    if not isinstance(named, str) or not named.strip():
        raise UserError(f"benchmark: {type(benchmark).__name__}.name={named!r} must be a text that is not empty")
    metrics: object = benchmark.metrics
    if not isinstance(metrics, tuple | list) or not all(isinstance(name, str) for name in metrics):
        raise UserError(f"benchmark {named}: metrics={metrics!r} must be a tuple of texts, of one as (text,)")
    if strange := next((name for name in benchmark.scored_by if name not in VERSIONS), None):
        raise UserError(f"benchmark {benchmark.name}: {unknown('file of metrics in scored_by', strange, VERSIONS)}")
    require(f"benchmark {benchmark.name}", *benchmark.packages)
    return benchmark


def check(settings: Sequence[Choice], benchmark: Benchmark, spec: ModelSpec) -> None:
    """Raise UserError for mistakes that can be found before a model is loaded."""
    if not settings:
        raise UserError("no method is chosen: method=NAME or 'method=[NAME,NAME]'")
    if taken := next((choice.label for choice in settings if choice.label in COLUMNS), None):
        # a table by task has a column for each setting beside these
        raise UserError(f"a setting may have any name but {', '.join(COLUMNS)}, which tables have: rename {taken!r}")
    check_longest(benchmark, spec)


def check_longest(benchmark: Benchmark, spec: ModelSpec) -> None:
    """Refuse prompts longer than the model's context limit, if both are known."""
    longest: object = benchmark.longest
    if longest is not None and not isinstance(longest, Integral):
        raise UserError(f"benchmark {benchmark.name}: longest={longest!r} must be an integer, or None if not known")
    if benchmark.longest is not None and spec.max_length is not None and benchmark.longest > spec.max_length:
        raise UserError(
            f"the longest prompt of {benchmark.name} with its answer takes {benchmark.longest} tokens, but "
            f"{spec.name} reads at most {spec.max_length}"
        )


def check_calibrations(settings: Sequence[Setting], spec: ModelSpec) -> None:
    """Refuse calibration files that say they were made for another model."""
    for file in (file for setting in settings for file in calibrations(setting.method)):
        if file.model and file.model != spec.name:
            raise UserError(f"{file.path} was made for model {file.model!r}, not for {spec.name!r}")


def check_speed(question: str, memory: str, first_token: str, batch: str) -> None:
    """Raise UserError for settings that benchmark=speed ignores, and if packages that read clocks are missing."""
    require("benchmark=speed, which notes the machine's clocks,", "pynvml")
    if question != "visible":
        raise UserError(f"question={question}: benchmark=speed reads a text without a question, so it must be visible")
    if first_token != "full":
        raise UserError(f"first_token={first_token}: benchmark=speed gives fixed tokens, whatever the first one is")
    if memory != "shared":
        raise UserError(
            f"memory={memory}: benchmark=speed streams every method that can be streamed, and its records "
            "say which, so it must be shared"
        )
    if batch != "auto":
        raise UserError(
            f"decode.batch={batch}: benchmark=speed decodes one setting at a time, in as many copies of its prompt as "
            "benchmark.batches= says: leave decode.batch out"
        )


def check_batches(benchmark: Speed, spec: ModelSpec) -> None:
    """Refuse to run the largest batch by bytes that leave out activations, where it would fill the machine."""
    if LARGEST not in benchmark.batches or spec.resolve_device().startswith("cuda"):
        return
    free, allowed = free_memory() / 2**30, benchmark.memory_gib
    if allowed is None or allowed >= free:
        given = "null" if allowed is None else allowed
        raise UserError(
            f"benchmark.batches=largest with benchmark.memory_gib={given}: without a GPU it runs as many sequences as "
            "fit by counted bytes, without activations, and would fill the machine: benchmark.memory_gib=GIB, well "
            f"below the {free:.1f} that are free"
        )


def check_memory(memory: str, settings: Sequence[Setting]) -> None:
    """Refuse memory=stream for several settings, which need the layers that it frees, and for joint compression."""
    if memory == "shared":
        return
    if len(settings) != 1:
        raise UserError(
            f"memory=stream measures one setting at a time, not {len(settings)}: name one method with one ratio "
            "or budget, for example method=snapkv ratio=0.2"
        )
    method = settings[0].method
    if method.streams:
        return
    if method.layerwise:
        raise UserError(
            f"memory=stream cannot run {settings[0].name!r}: its second pass reads the caches of all layers"
        )
    raise UserError(f"memory=stream cannot run {settings[0].name!r}, whose layers are compressed together")


def measures_distance(value: Literal["auto"] | bool, memory: str, benchmark: Benchmark) -> bool:
    """Whether distances from FullKV are measured; auto: if the benchmark has no score."""
    if value is True and memory == "stream":
        raise UserError("distance=true compares each setting with FullKV, and memory=stream runs one setting alone")
    measured = memory != "stream" and (not benchmark.metrics if value == "auto" else value)
    if not measured and isinstance(benchmark, Text):
        option = "memory=stream" if memory == "stream" else "distance=false"
        raise UserError(f"{option} measures no distance from FullKV, and benchmark={benchmark.name} has no other value")
    return measured


def check_chunk(
    chunk: int | None, memory: str, settings: Sequence[Setting], benchmark: Benchmark, probes: bool
) -> None:
    """Refuse chunks if anything needs the whole prompt in a layer before the next layer."""
    if chunk is None:
        return
    reason = None
    if probes:
        reason = "probes observe a layer's whole prompt at once"
    elif memory == "stream" or isinstance(benchmark, Speed):
        option = "memory=stream" if memory == "stream" else "benchmark=speed"
        reason = f"{option} frees a layer before the next one, and chunks need all layers until the prompt's end"
    elif pruning := [setting.name for setting in settings if setting.method.compress_at == "in_prefill"]:
        reason = f"{pruning[0]!r} drops tokens while the prompt is read, in a pass of its own"
    if reason:
        raise UserError(f"prefill.chunk={chunk}: {reason}: leave one of the two out")
