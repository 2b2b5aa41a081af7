"""Whole runs in this process: composed as the command composes them, on a tiny model."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

from hydra import compose as compose_config
from hydra import initialize_config_dir
from omegaconf import OmegaConf

from kvbench.configuration import Configuration
from kvbench.configuration.conf import CONF
from kvbench.records import load
from kvbench.records.schema.method import MethodRecord
from kvbench.records.store import RECORDS, read_records
from kvbench.runner import outputs
from kvbench.runner import run as command

# Fields that differ from run to run.
SECONDS = [name for name in MethodRecord.model_fields if name.endswith("_seconds")]
TIMES = [*SECONDS, "run", "decode_batch"]


def compose(*overrides: str) -> Configuration:
    """The configuration of `kvbench OVERRIDES`; Hydra composes each choice of files once (shared_compositions.py)."""
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose_config("config", list(overrides))
    return Configuration.from_plain(OmegaConf.to_container(config, resolve=True))


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


def manifests(folder: Path) -> list[dict]:
    """The manifests of a folder's runs, in their order."""
    found = [json.loads(path.read_text()) for path in (folder / "manifests").iterdir()]
    return sorted(found, key=lambda manifest: manifest["number"])


def comparable(folder: Path) -> list[dict]:
    """Records without the fields that differ from run to run, ordered by key."""
    records, torn = read_records(folder / RECORDS)
    assert not torn
    return sorted(({k: v for k, v in record.items() if k not in TIMES} for record in records), key=lambda r: r["key"])


def outcomes(folder: Path) -> list[tuple]:
    """Key, generated tokens and r_bytes of every record, ordered by key."""
    frame = load(folder)
    return sorted(zip(frame["key"], map(tuple, frame["tokens"]), frame["r_bytes"], strict=True))
