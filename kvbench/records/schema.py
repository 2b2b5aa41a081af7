"""What the lines of `records.jsonl` and `samples.jsonl` and the manifests hold: one typed schema for each.

Evaluation builds records with `build`; every reader checks what it reads with `check_record`,
`check_manifest` or `check`. docs/records.md is made from the descriptions and units below.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, InstanceOf, ValidationError
from typing_extensions import TypeAliasType

from kvbench.errors import UserError

Text = InstanceOf[str]  # also text that UTF-8 cannot hold: a lone surrogate, from broken data files
Integer = Annotated[int, Field(ge=-(2**63), lt=2**63)]  # as a column of a data frame
Count = Annotated[int, Field(ge=0, lt=2**63)]
Number = Annotated[float, Field(allow_inf_nan=False)]


def _not_whole(value: Any) -> Any:
    if isinstance(value, int):  # a float would take an integer of any size
        raise ValueError("integer out of range")
    return value


Fractional = Annotated[Number, BeforeValidator(_not_whole)]
Plain = TypeAliasType("Plain", "bool | Integer | Fractional | Text | list[Plain] | dict[Text, Plain] | None")


def field(meaning: str, unit: str = "", *, since: str = "", optional: bool = False) -> Any:
    """A field with its meaning and unit. `optional`: some records lack it; `since`: those of earlier versions do."""
    extra = {"unit": unit, "since": since}
    return Field(default=None if optional or since else ..., description=meaning, json_schema_extra=extra)


class Strict(BaseModel):
    """Values are of exactly the field's type; fields that are not named here may stand beside them."""

    model_config = ConfigDict(strict=True, extra="allow")


class Record(Strict):
    """The fields that records of every kind have."""

    model_config = ConfigDict(strict=True, extra="allow")
    __pydantic_extra__: dict[str, Plain]

    key: Text = field("hash of the folder's identity, the sample and the setting; unique in a folder")
    kind: Text = field("what was measured: method, probe or speed", since="0.2")
    run: Text = field("the run that made the record; `manifests/` has its manifest")
    benchmark: Text = field("name of the benchmark")
    model: Text = field("name of the model")
    sample: Text = field("id of the sample; `samples.jsonl` says what it asks")
    setting: Text = field("label of the setting (method with ratio or budget) or probe, unique in a run")
    parameters: Text = field("the method's or probe's configuration as canonical JSON")
    question: Literal["visible", "hidden"] = field("whether the question was compressed with the context")
    prompt_tokens: Count = field("length of the compressed prompt; of a hidden question its context", "tokens")
    checksum: Text = field("of the rest of the line, as it was written; readers check and drop it", since="0.2")


class OfSetting(Record):
    """What records of kind `method` and `speed` share."""

    method: Text = field("the method's name in tables")
    ratio: Number | None = field("requested share of the prompt's tokens; null where a budget is requested", "1")
    budget: Count | None = field("requested tokens per layer and head; null where a ratio is requested", "tokens")
    compress_at: Text = field(
        "when the prompt is compressed: in_prefill, prefill_end, first_decode, every_step or while_decoding"
    )
    scores: dict[Text, Number] = field(
        "score by metric; the first is the benchmark's main one", "as the metric defines it"
    )
    tokens: list[Integer] | None = field("ids of the generated tokens, without the one that ended them")
    decode_steps: Count | None = field("forward passes after prefill", "passes")
    decode_seconds: Number | None = field("time of these passes; in a batch until this sequence ended", "s")


class MethodRecord(OfSetting):
    """One sample under one setting: prediction, scores, reserve ratio, bytes and times."""

    floored: bool = field("the method cannot go as low as requested: it kept its minimum")
    full_cache_tokens: Count = field("generated tokens that were chosen with the uncompressed cache", "tokens")
    context_id: Text = field("samples with the same value are about one context", optional=True)
    question_tokens: Count = field(
        "read between compression and the answer: a hidden question, earlier answers and later turns; else 0", "tokens"
    )
    answers: list[Text] = field("the expected answers")
    prediction: Text = field("the generated text")
    distance: dict[Text, Number] | None = field(
        "from FullKV along FullKV's own greedy answer: `kl` and `answer_loglik` (of the first expected answer, "
        "minus FullKV's) in nats, `top1` and `agreed` as shares; null where it was not measured",
        "see there",
        since="0.2",
    )
    target_missed: bool = field(
        "the method searches for the requested ratio, and no eviction came within 1 % of it", since="0.2"
    )
    r1: Number = field("retained vectors / all vectors, mean over layers", "1")
    r2: Number = field("codebook entries / retained vectors, mean over layers; 1 without a codebook", "1")
    r3: Number = field("size of an entry with references and magnitudes / raw vector, mean over layers", "1")
    r: Number = field("reserve ratio, SpindleKV's formula 15: mean over layers of r1·r2·r3", "1")
    r_corrected: Number = field("r with references and magnitudes paid per retained vector", "1")
    r_bytes: Number = field("stored_bytes / full_bytes", "1")
    ratio_over: Literal["kv_heads", "query_heads"] = field(
        "heads whose vectors r, r1 and r2 count: the model's KV heads, or its query heads where each stores its own",
        since="0.2",
    )
    r_full: Number = field(
        "r of the layers with full attention alone; missing where no layer has a sliding window", "1", optional=True
    )
    r_bytes_full: Number = field(
        "r_bytes of the layers with full attention alone: the requested ratio and papers refer to these; missing where "
        "no layer has a sliding window",
        "1",
        optional=True,
    )
    r_bytes_floor: Number = field(
        "window_bytes / full_bytes: no method can bring r_bytes lower; missing where no layer has a sliding window",
        "1",
        optional=True,
    )
    window_bytes: Count = field(
        "what layers with a sliding window hold of the prompt, part of stored_bytes and full_bytes; missing where no "
        "layer has one",
        "bytes",
        optional=True,
    )
    full_layers: list[Count] = field(
        "numbers of the layers with full attention, which the lists by layer are of; missing where all are",
        optional=True,
    )
    stored_bytes: Count = field("what the compressed cache holds of the prompt", "bytes")
    full_bytes: Count = field("FullKV's cache of the same prompt", "bytes")
    nominal_per_layer: list[Number] = field("tokens per head that each layer's allocation asks for", "tokens")
    kept_per_layer: list[Number] = field(
        "tokens per head of `ratio_over` that each layer kept, mean over heads", "tokens"
    )
    kept_per_head: list[list[Count] | None] | None = field(
        "tokens of each head of `ratio_over`, by layer; null where heads keep equally many", "tokens", optional=True
    )
    kept_positions: list[Text | None] | None = field(
        "where the kept tokens of each layer lie, encoded; null where no entry is one token's", optional=True
    )
    memory: Literal["shared", "stream"] = field("shared: one prefill for all settings; stream: layer by layer")
    peak_cache_bytes: Count = field("keys and values at the largest moment, counted", "bytes")
    peak_device_bytes: Count | None = field("the GPU allocator's peak, model included; null on a CPU", "bytes")
    prefill_seconds: Number = field("prefill with the observations that the pass's settings need", "s")
    compress_seconds: Number = field("compression of the prompt", "s")
    close_call: Count | None = field(
        "first generated token whose choice rounding could change; null if none", "token index", optional=True
    )
    sampling: dict[Text, Plain] | None = field(
        "seed, temperature, top_p and top_k of a drawn answer; missing where the likeliest token was taken",
        optional=True,
    )
    decode_tokens: Count = field(
        "tokens read after prefill, those of a hidden question included", "tokens", since="0.2"
    )
    decode_byte_steps: Count = field("sum over the passes after prefill of the bytes held", "bytes", since="0.2")
    decode_bytes_mean: Number = field(
        "mean over these passes; without any, what the prompt's cache holds", "bytes", since="0.2"
    )
    decode_bytes_peak: Count = field("most bytes held, from the end of prefill on", "bytes", since="0.2")
    decode_bytes_end: Count = field("bytes held after the last pass", "bytes", since="0.2")
    decode_bytes_read: Number = field("bytes that attention reads, mean over these passes", "bytes", since="0.2")
    r_mean: Number = field("bytes held / FullKV's, both summed over the passes after prefill", "1", since="0.2")
    r_peak: Number = field("most bytes held, prefill and compression included / FullKV's at the end", "1", since="0.2")
    r_decode_peak: Number = field("decode_bytes_peak / FullKV's at the end", "1", since="0.2")
    r_end: Number = field("decode_bytes_end / FullKV's at the end", "1", since="0.2")
    r_read: Number = field("bytes read / FullKV's, both summed over the passes after prefill", "1", since="0.2")
    triggers: Count = field(
        "passes after which the cache was reduced, in the layer with the most; missing where no layer is at intervals",
        "passes",
        optional=True,
    )
    question_seconds: Number = field("reading the hidden question, whole batch", "s", optional=True)
    decode_batch: Count = field("sequences that decoded together", "sequences", optional=True)


class ProbeRecord(Record):
    """What one probe observed in the layers of a model during one sample's prefill."""

    probe: Text = field("name of the probe")
    quantity: Text = field("what the values are, with their unit")
    axes: Text = field("what a layer's values run over: heads, tokens or map (tokens × tokens)")
    answer_tokens: Count = field("greedy answer that the probe saw after the prompt; 0 if it saw none", "tokens")
    layers: list[Count] = field("indices of the layers observed")
    values: list[list[Any]] = field("the values, one nested list per layer", "see `quantity`")


class SpeedRecord(OfSetting):
    """Time and memory of one setting at one length and batch: medians of repeats, and counted bytes.

    Without a single sequence that fits, the fields from `floored` to `memory` are missing.
    """

    fits: bool = field("whether the batch fits into memory; if not, its times and bytes are null")
    sequences: Count | None = field("sequences in the batch", "sequences")
    floored: bool = field("the method cannot go as low as requested: it kept its minimum", optional=True)
    target_missed: bool = field("see kind `method`", since="0.2")
    r1: Number = field("see kind `method`", "1", optional=True)
    r2: Number = field("see kind `method`", "1", optional=True)
    r3: Number = field("see kind `method`", "1", optional=True)
    r: Number = field("see kind `method`", "1", optional=True)
    r_corrected: Number = field("see kind `method`", "1", optional=True)
    r_bytes: Number = field("see kind `method`", "1", optional=True)
    ratio_over: Literal["kv_heads", "query_heads"] = field("see kind `method`", since="0.2")
    r_full: Number = field("see kind `method`", "1", optional=True)
    r_bytes_full: Number = field("see kind `method`", "1", optional=True)
    r_bytes_floor: Number = field("see kind `method`", "1", optional=True)
    window_bytes: Count = field("see kind `method`", "bytes", optional=True)
    stored_bytes: Count = field("what one sequence's compressed cache holds of the prompt", "bytes", optional=True)
    full_bytes: Count = field("FullKV's cache of the same prompt", "bytes", optional=True)
    memory: Literal["shared", "stream"] = field("stream: layers were compressed during prefill", optional=True)
    prefilled_bytes: Count | None = field("the batch's caches once its prompts are compressed", "bytes")
    decoded_bytes: Count | None = field("the batch's caches after the last token", "bytes")
    peak_cache_bytes: Count | None = field("keys and values at the largest moment, counted", "bytes")
    peak_device_bytes: Count | None = field("the GPU allocator's peak, model included; null on a CPU", "bytes")
    prefill_seconds: Number | None = field("median, one sequence", "s")
    compress_seconds: Number | None = field("median, one sequence", "s")
    allocation_seconds: Number | None = field("median, of compress_seconds: tokens per layer; null if no rule", "s")
    first_token_seconds: Number | None = field("median, one sequence: prefill and compression", "s")
    latency_seconds: Number | None = field("median, whole batch: its prompts one after the other, decoding", "s")
    decode_tokens_per_s: Number | None = field("of the whole batch: sequences · decode_steps / decode_seconds", "1/s")
    spread_seconds: dict[Text, dict[Text, Number]] = field("median, min, max and interquartile range by time", "s")
    repeats_seconds: dict[Text, list[Number]] = field("every repeat by time", "s")
    stacked_layers: Count | None = field("layers that answer the batch with one attention call", "layers")
    largest_batch: Count | None = field("largest batch that fits; null if not searched for", "sequences")
    places: list[Count] = field("the setting's place in the order of each round", "index")
    largest_how: Text = field("tried on the GPU, or counted from bytes")
    conditions: dict[Text, Plain] = field("load, clocks and governor before and after the rounds")
    beside: list[Text] = field("labels of the settings measured in the same rounds")


KINDS: dict[str, type[Record]] = {"method": MethodRecord, "probe": ProbeRecord, "speed": SpeedRecord}


class SampleRow(Strict):
    """A line of `samples.jsonl`."""

    sample: Text = field("id of the sample")
    prompt_end: Text = field("the last 1,000 characters of the prompt", optional=True)
    prompt_characters: Count = field("length of the prompt", "characters", optional=True)
    question: Text = field("the last 1,000 characters of the question", optional=True)
    prefix: Text = field("text that the answer begins with", optional=True)
    answers: list[Text] = field("the expected answers", optional=True)
    meta: dict[Text, Plain] = field("the columns that the sample adds to its records", optional=True)


class ModelNode(Strict):
    """A configuration's model."""

    name: Text = field("name of the model")


class Config(Strict):
    """The resolved configuration of a run, as far as readers use it."""

    model: ModelNode = field("the model")
    benchmark: dict[str, Any] = field("the benchmark")
    limit: Count | None = field("samples of each task; null for all", "samples", optional=True)
    shard: Count = field("index of the shard", optional=True)
    shards: Count = field("number of shards", optional=True)


class Slurm(Strict):
    """The Slurm job of a run."""

    job: Text | Count = field("id of the job")
    array: Text | None = field("id of the array; null outside of one", optional=True)
    task: Text | None = field("index in the array; null outside of one", optional=True)
    restarts: Count = field("how often Slurm requeued the job", optional=True)


class JobNote(Strict):
    """What a manifest says of its process; the whole note of a job that ended before its run had a folder."""

    started: Text = field("when the run started, by its machine's clock", "UTC, ISO 8601", optional=True)
    ended: Text = field("when the run ended; missing while it runs and where it was killed", "UTC", optional=True)
    status: Text = field("running, finished, or what stopped it", optional=True)
    error: Text = field("the error that ended the run, in one line", optional=True)
    config: Config = field("the resolved configuration", optional=True)
    host: Text = field("name of the machine", optional=True)
    pid: Count = field("process id", optional=True)
    slurm: Slurm | None = field("the Slurm job; null elsewhere", optional=True)


class Manifest(JobNote):
    """A file of `manifests/`, one per run (a process): what produced the run's records."""

    run: Text = field("id of the run, in its records' `run`")
    number: Count = field("1 for the folder's first run; one more than the largest when the run started", since="0.2")
    model: dict[str, Any] = field("identity of the weights: the hub's revision, or a hash of each file", optional=True)
    chat_template: Text | None = field("the chat template used", optional=True)
    template_args: dict[str, Any] = field("arguments of the chat template; missing without any", since="0.2")
    load_args: dict[str, Any] = field("arguments of from_pretrained; missing without any", since="0.2")
    dtype: Text = field("dtype of the weights", optional=True)
    device: Text = field("cpu or cuda", optional=True)
    benchmark: dict[str, Any] = field("the benchmark's configuration, without local paths", optional=True)
    data_sha256: Text = field("hash of all samples", optional=True)
    question: Text = field("visible or hidden", optional=True)
    memory: Text = field("stream; missing for shared", optional=True)
    settings: list[Text] = field("labels of the requested settings or probes", optional=True)
    requested: list[Text] = field("hashes of the requested settings (`asked` in 0.1)", since="0.2")
    wanted: Count = field("records that the run's samples and settings make", "records", optional=True)
    there: Count = field("of these, records that existed when the run started", "records", optional=True)
    records: Count | Text = field("records that the run made", "records", optional=True)
    wall_seconds: Number = field("duration of the run", "s", optional=True)
    kvbench: Text = field("version of kvbench", optional=True)
    git: Text | None = field("commit, with -dirty for uncommitted changes; null without a checkout", optional=True)
    python: Text = field("version of Python", optional=True)
    kernels: Text = field("what computed operators: torch, or triton and its version", since="0.2")
    sdpa: Text = field("torch's backend of a prompt's attention; math makes n × n weights", since="0.2")
    packages: dict[Text, Text | None] = field("versions of packages", optional=True)
    hardware: dict[str, Any] = field("CPU, cores, threads, memory, GPUs, CUDA, system", optional=True)
    command: list[Text] = field("the command line", optional=True)


def kind_of(record: Mapping) -> str:
    """method, probe or speed; for records of version 0.1.0, which lack `kind`, by the fields of each kind."""
    if (kind := record.get("kind")) is not None:
        return kind
    return "probe" if "probe" in record else "speed" if "repeats_seconds" in record else "method"


def build(kind: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """A record to store: `fields` in their order, with the kind after the key.

    Raises UserError for a value that the schema does not allow, a score of NaN for example.
    """
    try:
        return check_record({"key": fields["key"], "kind": kind, **fields})
    except ValueError as error:
        raise UserError(f"sample {fields['sample']!r} under {fields['setting']!r} makes no record: {error}") from None


def check_record(record: object) -> dict[str, Any]:
    """The record as it is. Raises ValueError with one line if it is none of a known kind."""
    if not isinstance(record, dict):
        raise ValueError("not a JSON object")
    kind = kind_of(record)
    if not isinstance(kind, str) or kind not in KINDS:
        raise ValueError(f"unknown kind {kind!r}")
    check(record, KINDS[kind])
    return record


def check_manifest(manifest: object) -> dict[str, Any]:
    """A manifest, that of a 0.1.0 with the key `requested`. Raises ValueError with one line if it is none."""
    if isinstance(manifest, dict) and "asked" in manifest:
        manifest = {("requested" if key == "asked" else key): value for key, value in manifest.items()}
    return check(manifest, Manifest)


def check(value: object, schema: type[BaseModel]) -> Any:
    """The value as it is. Raises ValueError with one line if it does not fit the schema."""
    try:
        schema.__pydantic_validator__.validate_python(value)
    except ValidationError as error:
        first, *more = error.errors(include_url=False, include_context=False, include_input=False)
        if not first["loc"]:
            raise ValueError("not a JSON object") from None
        if any(other["loc"][:1] == first["loc"][:1] for other in more):  # one for each part of a union
            raise ValueError(f"field {first['loc'][0]!r} has a value of the wrong type or size") from None
        place = ".".join(map(str, first["loc"]))
        raise ValueError(f"field {place!r}: {first['msg'][0].lower()}{first['msg'][1:]}") from None
    return value
