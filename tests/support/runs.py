"""Whole runs in this process: composed as the command composes them, on a tiny model."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, reduce
from pathlib import Path
from unittest.mock import patch

from hydra import compose as compose_config
from hydra import initialize_config_dir
from omegaconf import OmegaConf

from kvbench.configuration import Configuration
from kvbench.configuration.conf import CONF
from kvbench.records import load
from kvbench.records.store import RECORDS, read_records
from kvbench.runner import outputs
from kvbench.runner import run as command

# Fields that differ from run to run.
TIMES = ["prefill_seconds", "compress_seconds", "question_seconds", "decode_seconds", "run", "decode_batch"]

# Keys that say where a test's files are. They are set afterwards, so that a configuration is composed once for all.
PLACES = {"output_dir": (), "model.path": ("model",)}


@cache
def _composed(overrides: tuple[str, ...]) -> dict:
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return OmegaConf.to_container(compose_config("config", list(overrides)), resolve=True)


def compose(*overrides: str) -> Configuration:
    """The configuration of `kvbench OVERRIDES`."""
    values = dict(override.split("=", 1) for override in overrides if "=" in override)
    places = {key: values[key] for key in PLACES if values.get(key, "").startswith("/")}
    config = copy.deepcopy(_composed(tuple(o for o in overrides if o.partition("=")[0] not in places)))
    for key, place in places.items():
        reduce(dict.__getitem__, PLACES[key], config)[key.rpartition(".")[2]] = place
    return Configuration.from_plain(config)


def run(*overrides: str) -> Path:
    """The folder of a run's records, without tables and figures."""
    with unreported():
        return reported(*overrides)


def reported(*overrides: str) -> Path:
    """The folder of a whole run."""
    return command.run(compose(*overrides))


@contextmanager
def unreported() -> Iterator[None]:
    """Runs end with their records: tables and figures take longer than a tiny model's answers."""

    def nothing(*_: object) -> outputs.Outputs:
        return {}, []

    with patch.multiple(outputs, report=nothing, report_probes=nothing):
        yield


def arguments(tiny_folder: Path, out: Path, *more: str) -> list[str]:
    """A run of 27 records: three needles, FullKV once and four methods at two ratios."""
    return [
        f"model.path={tiny_folder}",
        "model.shape=null",  # a tiny network under the preset's name
        "model.max_length=4096",
        "benchmark.lengths=[330]",
        "benchmark.depths=[0,50,100]",
        "benchmark.max_new_tokens=6",
        "method=[full,streaming_llm,h2o,snapkv,pyramidkv]",
        "ratio=[0.2,0.5]",
        f"output_dir={out}",
        *more,
    ]


def comparable(folder: Path) -> list[dict]:
    """Records without the fields that differ from run to run, ordered by key."""
    records, torn = read_records(folder / RECORDS)
    assert not torn
    return sorted(({k: v for k, v in record.items() if k not in TIMES} for record in records), key=lambda r: r["key"])


def outcomes(folder: Path) -> list[tuple]:
    """Key, generated tokens and r_bytes of every record, ordered by key."""
    frame = load(folder)
    return sorted(zip(frame["key"], map(tuple, frame["tokens"]), frame["r_bytes"], strict=True))
