"""A run's manifest, and the identity of the folder of its records."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kvbench.benchmarks import Benchmark, Sample
from kvbench.benchmarks.base import data_hash
from kvbench.configuration import Configuration
from kvbench.evaluation.prompts import AnyModel
from kvbench.evaluation.record import AnyRun
from kvbench.metrics.answers import plugged
from kvbench.metrics.versions import VERSIONS
from kvbench.models import ModelSpec
from kvbench.models.folder import model_identity
from kvbench.models.load import source_of
from kvbench.records.identity import identity_of
from kvbench.records.manifest import end_manifest, next_number, write_manifest
from kvbench.records.store import Store
from kvbench.runner.job_state import ended_by, place
from kvbench.runner.own_classes import own_code
from kvbench.runner.shards import requested_keys
from kvbench.utils.console import warn
from kvbench.utils.environment import environment, now
from kvbench.utils.hashing import digest
from kvbench.utils.model_keys import IDENTIFYING
from kvbench.utils.places import PLACES
from kvbench.utils.plugins import versions_of
from kvbench.utils.signals import unbroken
from kvbench.utils.targets import DESCRIBING
from kvbench.utils.versions import parts, versions


def folder_identity(
    cfg: Configuration, loaded: AnyModel, samples: Sequence[Sample], benchmark: Benchmark | None = None
) -> dict[str, Any]:
    """What all records of a run's folder have in common."""
    fields = {
        "model": identity_of_model(loaded),
        "chat_template": loaded.spec.chat_template,
        **stated(loaded.spec, *IDENTIFYING),
        "dtype": str(loaded.dtype),
        "device": loaded.device,
        "benchmark": identifying(cfg.benchmark),
        "data_sha256": data_hash(samples),
        "question": cfg.question,
        **({} if cfg.first_token == "full" else {"first_token": cfg.first_token}),
        # peaks and timings of the two modes do not belong in one table
        **({} if cfg.memory == "shared" else {"memory": cfg.memory}),
        "versions": {"benchmark": benchmark_versions(benchmark)},
        "config": cfg.plain,
    }
    return identity_of(fields)


def identity_of_model(loaded: AnyModel) -> dict[str, Any]:
    """The identity of a model's weights and tokenizer; random weights have the tokenizer of another model."""
    commit = getattr(loaded.config, "_commit_hash", None)
    identity = model_identity(loaded.source, commit or loaded.spec.revision)
    if loaded.spec.random is None:
        return identity
    return identity | {"tokenizer": model_identity(source_of(loaded.spec)[0], loaded.spec.revision, weights=False)}


def identifying(node: Mapping[str, Any]) -> dict[str, Any]:
    """A benchmark's configuration without places and descriptions, and so for a benchmark inside it."""
    kept = {key: value for key, value in node.items() if key not in PLACES | DESCRIBING}
    return {key: identifying(value) if isinstance(value, Mapping) else value for key, value in kept.items()}


def benchmark_versions(benchmark: Benchmark | None) -> dict[str, int]:
    """The versions of a benchmark and of the metrics that score it."""
    metrics = {name: VERSIONS[name] for name in benchmark.scored_by} if benchmark else {}
    return versions(benchmark) | metrics


def all_versions(run: AnyRun) -> dict[str, dict[str, int]]:
    """The versions of everything that shapes the records of a run."""
    settings = versions(*map(vars, run.settings))
    return {"settings": settings, "benchmark": benchmark_versions(run.benchmark)}


def plugins_of(run: AnyRun, samples: Sequence[Sample]) -> dict[str, str]:
    """The versions of the plug-ins whose classes and metrics make a run's records."""
    objects = [value for setting in run.settings for value in vars(setting).values()]
    modules = {type(part).__module__ for part in (*objects, *parts(run.benchmark, *objects))}
    metrics = {plugged().get(str(sample.meta.get("metric")), "") for sample in samples}
    return versions_of([*modules, *metrics])


def stated(spec: ModelSpec, *names: str) -> dict[str, Any]:
    """The model's arguments with these names, without empty ones, which are no part of the folder's identity."""
    return {name: value for name in names if (value := getattr(spec, name))}


def opening(
    cfg: Configuration,
    run: AnyRun,
    identity: dict[str, Any],
    shard: Sequence[Sample],
    store: Store,
    made_by: dict[str, Any],
) -> dict[str, Any]:
    """The manifest at the beginning of a run; `made_by` names the code that computes it.

    `kvbench status` reads the last three entries to count the run's records.
    """
    requested = requested_keys(run, shard)
    return {
        "run": run.id,
        "number": next_number(store.path.parent),
        "started": now(),
        "status": "running",
        "config": cfg.plain,
        **identity,
        "versions": all_versions(run),
        "settings": [setting.label for setting in run.settings],
        **place(),
        **environment(),
        **({"plugins": code} if (code := plugins_of(run, shard)) else {}),
        **({"own_code": files} if (files := own_code(run)) else {}),
        **({"checkpoint_dtype": published} if (published := getattr(run.loaded, "checkpoint_dtype", None)) else {}),
        **made_by,
        "requested": [digest(setting.key) for setting in run.settings],
        "wanted": len(requested),
        "there": len(requested & store.done),
    }


@contextmanager
def manifest_of(folder: Path, manifest: dict[str, Any], store: Store, started: float) -> Iterator[Path]:
    """Write a run's manifest, and write it again at the end of the block, with the run's outcome.

    `started` is time.perf_counter() when the command began; `manifest` is updated in place. Yields the file.
    """
    path = folder / "manifests" / f"{manifest['run'].replace(':', '')}.json"
    write_manifest(path, manifest)
    try:
        yield path
        manifest["status"] = "finished"
    except BaseException as error:
        manifest |= ended_by(error)
        raise
    finally:
        seconds = round(time.perf_counter() - started, 1)
        manifest |= {"ended": now(), "wall_seconds": seconds, "records": store.made}
        with unbroken():
            end_manifest(path, manifest)


def write_again(path: Path, manifest: dict[str, Any]) -> None:
    """Write the manifest again if it was removed during the run: records refer to it."""
    if not path.exists():
        warn(f"{path} was removed while kvbench was running; it is written again")
        write_manifest(path, manifest)
