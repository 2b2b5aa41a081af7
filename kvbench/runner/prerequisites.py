"""A run's needs of this machine, checked before torch is imported, which takes seconds: data, a model's folder and
packages. A benchmark's values are checked, too, if it reads no files when it is built.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from kvbench.configuration import Configuration
from kvbench.configuration.compose import typed_values
from kvbench.configuration.configuration import check_some
from kvbench.errors import UserError, unknown
from kvbench.utils.extras import require
from kvbench.utils.model_shape import check_model_folder
from kvbench.utils.places import PLACES, names_published
from kvbench.utils.targets import build, class_of

OURS = "kvbench."  # begins the _target_ of kvbench's own benchmarks, whose keys are known


def check_typed(arguments: Sequence[str]) -> None:
    """Check a command's overrides, each separately, before Hydra composes the configuration, which takes a second."""
    values = typed_values(arguments)
    check_some(values)
    check_places({key.removeprefix("benchmark."): values[key] for key in values if key.startswith("benchmark.")})


def check_machine(cfg: Configuration) -> None:
    """Raise UserError for the first thing that this machine lacks, and for wrong values of the benchmark."""
    if cfg.wandb.mode != "disabled":
        require(f"wandb.mode={cfg.wandb.mode}", "wandb")
    if cfg.model.path is not None:
        check_model_folder(cfg.model.name, cfg.model.path, cfg.model.shape)
    if str(cfg.benchmark.get("_target_")).startswith(OURS):
        check_benchmark(cfg.benchmark)


def check_benchmark(benchmark: Mapping[str, object]) -> None:
    """Refuse wrong values of one of kvbench's benchmarks, by building it unless that fetches data."""
    check_places(benchmark)
    inside = [value for value in benchmark.values() if isinstance(value, Mapping)]
    if not any("data_dir" in node for node in (benchmark, *inside)):
        from kvbench.benchmarks import Benchmark  # imports pandas, which some commands do without

        build(benchmark, "benchmark", Benchmark)


def check_places(benchmark: Mapping[str, object], prefix: str = "benchmark.") -> None:
    """Refuse files and folders of a benchmark, and of one inside it, that do not exist."""
    for key, path in benchmark.items():
        if isinstance(path, Mapping):
            check_places(path, f"{prefix}{key}.")
        name = key.rpartition(".")[2]
        place = name in PLACES and isinstance(path, str) and not names_published(name, path)
        if place and not Path(str(path)).exists():
            raise UserError(f"{prefix}{key}={path!r} does not exist")


def check_measure(name: str | None, benchmark: Mapping[str, object]) -> None:
    """Refuse a score that no record of a benchmark has. A class without `metrics` states them only when it is built."""
    if name is None:
        return
    from kvbench.benchmarks import Benchmark  # imports pandas, which some commands do without
    from kvbench.metrics.aggregate import AGREEMENT

    metrics = getattr(class_of(benchmark, "benchmark", Benchmark), "metrics", None)
    if metrics is not None and name not in (*metrics, *AGREEMENT):
        raise unknown("measure", name, [*metrics, *AGREEMENT])
