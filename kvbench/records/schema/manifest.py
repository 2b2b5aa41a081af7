"""The files beside records: lines of `samples.jsonl`, and manifests."""

from typing import Annotated, Any

from pydantic import Field

from kvbench.configuration.kinds import MOST_SHARDS
from kvbench.records.schema.fields import Count, Number, Plain, Settled, Strict, Text, field


class SampleRow(Strict):
    """A line of `samples.jsonl`."""

    sample: Text = field("id of the sample")
    prompt_end: Text = field("the last 1,000 characters of the prompt", optional=True)
    prompt_characters: Count = field("length of the prompt", "characters", optional=True)
    question: Text = field("the last 1,000 characters of the question", optional=True)
    prefix: Text = field("text that the answer begins with", optional=True)
    answers: list[Text] = field("the expected answers", optional=True)
    evidence: list[dict[Text, Plain]] = field(
        "passages of the prompt before its question that contain an expected answer: `text`, and the number of "
        "characters before it (`at`)",
        since="0.2",
    )
    meta: dict[Text, Plain] = field("the columns that the sample adds to its records", optional=True)


class ModelNode(Strict):
    """A configuration's model."""

    name: Text = field("name of the model")


class Config(Strict):
    """The parts of a run's resolved configuration that readers use."""

    model: ModelNode = field("the model")
    benchmark: dict[str, Any] = field("the benchmark")
    limit: Count | None = field("samples of each task; null for all", "samples", optional=True)
    shard: Count = field("index of the shard", optional=True)
    shards: Annotated[int, Field(ge=0, le=MOST_SHARDS)] = field("number of shards", optional=True)


class Slurm(Strict):
    """The Slurm job of a run."""

    job: Text | Count = field("id of the job")
    array: Text | None = field("id of the array; null outside of one", optional=True)
    task: Text | None = field("index in the array; null outside of one", optional=True)
    restarts: Count = field("how often Slurm requeued the job", optional=True)


class JobNote(Strict):
    """A manifest's fields about its process; the whole note of a job that ended before its run had a folder."""

    started: Text = field("when the run started, by its machine's clock", "UTC, ISO 8601", optional=True, always=True)
    ended: Text = field("when the run ended; missing while it runs and if it was killed", "UTC", optional=True)
    status: Text = field("running, finished, or what stopped it", optional=True, always=True)
    error: Text = field("the error that ended the run, in one line", optional=True)
    config: Annotated[Config, Settled] = field("the resolved configuration", optional=True, always=True)
    host: Text = field("name of the machine", optional=True)
    pid: Count = field("process id", optional=True)
    slurm: Slurm | None = field("the Slurm job; null elsewhere", optional=True)


class Manifest(JobNote):
    """A file of `manifests/`, one per run (a process): what produced the run's records."""

    run: Text = field("id of the run, in its records' `run`")
    number: Count = field("1 for the folder's first run; one more than the largest when the run started", since="0.2")
    model: dict[str, Any] = field(
        "identity of the weights: the hub's revision, or a hash of each file; `tokenizer`: the same for that of random "
        "weights",
        optional=True,
        always=True,
    )
    chat_template: Text | None = field("the chat template used", optional=True, always=True)
    template_args: Annotated[dict[str, Any], Settled] = field(
        "arguments of the chat template; missing without any", since="0.2", optional=True
    )
    load_args: Annotated[dict[str, Any], Settled] = field(
        "arguments of from_pretrained; missing without any", since="0.2", optional=True
    )
    stop_tokens: list[int | Text] = field("named by model.stop_tokens; missing without any", since="0.2", optional=True)
    dtype: Text = field("dtype of the weights", optional=True, always=True)
    checkpoint_dtype: Text = field(
        "dtype in which the checkpoint's config.json says it is published; missing where it does not, for a GGUF file, "
        "and with random weights: taken for 16 bits",
        since="0.2",
        optional=True,
    )
    device: Text = field("cpu or cuda", optional=True, always=True)
    benchmark: Annotated[dict[str, Any], Settled] = field(
        "the benchmark's configuration, without local paths", optional=True, always=True
    )
    data_sha256: Text = field("hash of all samples", optional=True, always=True)
    question: Text = field("visible or hidden", optional=True, always=True)
    first_token: Text = field("compressed; missing for full, the prefill's", optional=True)
    memory: Text = field("stream; missing for shared", optional=True)
    settings: list[Text] = field("labels of the requested settings or probes", optional=True, always=True)
    requested: list[Text] = field("hashes of the requested settings (`asked` in 0.1)", since="0.2")
    wanted: Count = field("number of records for the run's samples and settings", "records", optional=True, always=True)
    there: Count = field("how many of these existed when the run started", "records", optional=True, always=True)
    records: Count | Text = field("records that the run made", "records", optional=True)
    wall_seconds: Number = field("duration of the run", "s", optional=True)
    versions: dict[Text, dict[Text, Count]] = field(
        "versions of what shaped the results, by class or file of metrics: `settings` (methods, their parts, probes) "
        "and `benchmark`; 1 where missing",
        since="0.2",
    )
    kvbench: Text = field("version of kvbench", optional=True, always=True)
    git: Text | None = field(
        "commit, with -dirty for uncommitted changes; null without a checkout", optional=True, always=True
    )
    plugins: dict[Text, Text] = field(
        "versions of the plug-ins whose classes and metrics made the records, by distribution; missing without any",
        since="0.2",
        optional=True,
    )
    own_code: dict[Text, Text] = field(
        "SHA-256 of the files of the user's own classes that made the records, by module; missing without any",
        since="0.2",
        optional=True,
    )
    python: Text = field("version of Python", optional=True, always=True)
    kernels: Text = field("backend of the operators: torch, or triton and its version", since="0.2", optional=True)
    sdpa: Text = field("torch's backend of a prompt's attention; math makes n × n weights", since="0.2", optional=True)
    sdpa_decode: Text = field(
        "torch's backend of a decoded token's attention over a dense cache", since="0.2", optional=True
    )
    reads_alike: Number = field(
        "difference of six tokens' hidden states from the model's own attention, as a share of their norm",
        since="0.2",
        optional=True,
    )
    unrotated_layers: list[Count] = field(
        "layers that do not rotate their keys, in a model with rotary embeddings; missing without any",
        since="0.2",
        optional=True,
    )
    weights_format: Text = field(
        "format of the stored weights, if it is not `dtype`: 4-bit bitsandbytes; missing for plain weights",
        since="0.2",
        optional=True,
    )
    engines: dict[Text, Any] = field(
        "what each engine says of itself, by label; missing without engines", since="0.2", optional=True
    )
    packages: dict[Text, Text | None] = field("versions of packages", optional=True, always=True)
    variables: dict[Text, Text] = field(
        "environment variables that change a CPU's results: ATEN_*, DNNL_*, KMP_*, MKL_*, NUMBA_*, OMP_*, ONEDNN_*",
        since="0.2",
    )
    hardware: dict[str, Any] = field(
        "CPU and its capability as torch uses it, cores, threads, memory, GPUs, CUDA, system",
        optional=True,
        always=True,
    )
    command: list[Text] = field("the command line", optional=True)
