"""Checks of a configuration's plain values, before torch is imported, which takes seconds."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException

from kvbench.config import build
from kvbench.errors import UserError, unknown
from kvbench.evaluation.requested import ratios_or_budgets
from kvbench.metrics.names import AGREEMENT, ANSWERS, OF_BENCHMARK
from kvbench.utils.extras import require
from kvbench.utils.model_override import check_named
from kvbench.utils.model_shape import check_folder_shape
from kvbench.utils.validation import PLACES, at_least, choice, model_folder

# key -> its values
CHOICES = {
    "question": ("visible", "hidden"),
    "first_token": ("full", "compressed"),
    "memory": ("shared", "stream"),
    "distance": ("auto", "true", "false"),
    "kernels": ("auto", "torch", "triton"),
    "wandb.mode": ("disabled", "offline", "online"),
}
# Keys with other values than these, each of which can be checked by itself.
PLAIN = ("ratio", "budget", "decode.batch", "limit", "prefill.chunk")
OURS = "kvbench."  # begins the _target_ of a benchmark whose keys are known
MODEL_CHOICES = {"dtype": ("auto", "float32", "float16", "bfloat16"), "chat_template": ("auto", "none")}


def check_typed(arguments: Sequence[str]) -> None:
    """`check_plain` of a command's overrides before Hydra composes the configuration, which takes a second.

    What is swept over, interpolated or no override at all is left for then.
    """
    try:
        parsed = OverridesParser.create().parse_overrides(list(arguments))
    except HydraException:
        return
    given = {one.key_or_group: one.value() for one in parsed if not (one.is_sweep_override() or one.is_delete())}
    check_plain({key: value for key, value in given.items() if not isinstance(value, str) or "$" not in value})


def check_values(cfg: Mapping) -> None:
    """Raise UserError with the first value that is wrong by itself, or a path where there is nothing."""
    check_plain({key: _at(cfg, key) for key in (*CHOICES, *PLAIN)})
    check_shard(cfg["shard"], cfg["shards"])
    if (cfg["question"], cfg["first_token"]) == ("hidden", "compressed"):
        raise UserError("question=hidden reads every first token through the compressed cache: leave first_token out")
    if cfg["probe"] and cfg["first_token"] == "compressed":
        raise UserError("probe= observes prompts and compresses nothing: leave first_token=compressed out")
    if cfg["wandb"]["mode"] != "disabled":
        require(f"wandb.mode={cfg['wandb']['mode']}", "wandb")
    if isinstance(model := cfg.get("model"), Mapping):
        check_model(model)
    if isinstance(benchmark := cfg.get("benchmark"), Mapping) and str(benchmark.get("_target_")).startswith(OURS):
        check_plain({f"benchmark.{key}": value for key, value in benchmark.items() if key in PLACES})
        if str(benchmark["_target_"]).endswith(".OwnPrompts"):
            check_metric(benchmark.get("metric"))
        if "data_dir" not in benchmark:
            check_benchmark(benchmark)


PUBLISHED = "published"  # in place of a path: what a package has of it


def check_plain(values: Mapping[str, object]) -> None:
    """Check values by their dotted keys, each by itself."""
    for key, allowed in CHOICES.items():
        if key in values:
            value = values[key]
            choice(key, str(value).lower() if isinstance(value, bool | int) else value, allowed)
    ratios_or_budgets(values.get("ratio"), values.get("budget"))
    if "decode.batch" in values:
        check_batch(values["decode.batch"])
    for key in ("limit", "prefill.chunk"):
        if values.get(key) is not None:
            at_least(key, values[key], 1)
    for key in PLACES:
        path = values.get(f"benchmark.{key}")
        if isinstance(path, str) and path != PUBLISHED and not Path(path).exists():
            raise UserError(f"benchmark.{key}={path!r} does not exist")


def check_benchmark(benchmark: Mapping) -> None:
    """Refuse wrong values of a benchmark by building it; for one that fetches no data when it is built."""
    from kvbench.benchmarks import Benchmark  # imports pandas, which --help does without

    build(benchmark, "benchmark", Benchmark)


def check_metric(name: object) -> None:
    """Refuse a metric of one's own prompts that is neither known nor a function's name, which has a dot."""
    if isinstance(name, str) and "." not in name and name not in ANSWERS:
        raise unknown("metric", name, [*ANSWERS, "module.function"])


def check_measure(name: str | None, benchmark: object) -> None:
    """Refuse a score that no record of a benchmark of kvbench's has; those of others are known once it is built."""
    kind = str(benchmark.get("_target_") if isinstance(benchmark, Mapping) else None)
    known = OF_BENCHMARK.get(kind.rpartition(".")[2]) if kind.startswith(OURS) else None
    if name is not None and known is not None and name not in (*known, *AGREEMENT):
        raise unknown("measure", name, [*known, *AGREEMENT])


def check_model(model: Mapping) -> None:
    """Refuse model=hf without a model, and a model.path without a model or with another network than the preset's."""
    check_named(model)
    for key in ("dtype", "chat_template"):
        if key in model:
            choice(f"model.{key}", model[key], MODEL_CHOICES[key])
    path, shape = model.get("path"), model.get("shape")
    if not isinstance(path, str):
        return
    try:
        model_folder(path)
    except ValueError as error:
        raise UserError(f"model.path={path!r} must be {error}") from error
    if isinstance(shape, Mapping):
        check_folder_shape(str(model.get("name")), shape, Path(path))


def _at(cfg: Mapping, key: str) -> object:
    node, _, name = key.rpartition(".")
    return (cfg[node] if node else cfg)[name]


def check_batch(value: object) -> None:
    number = int(value) if isinstance(value, str) and value.isdecimal() else value
    if value not in ("auto", "all") and (isinstance(number, bool) or not isinstance(number, int) or number < 1):
        raise UserError(f"decode.batch={value!r} must be auto, all or an integer of at least 1")


def check_shard(shard: object, shards: object) -> None:
    at_least("shards", shards, 1)
    if isinstance(shard, bool) or not isinstance(shard, int) or not 0 <= shard < shards:
        raise UserError(f"shard={shard} must be from 0 to {shards - 1} with shards={shards}")
