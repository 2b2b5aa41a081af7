"""Provenance of records: the fields of manifests in which compared records should agree."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from kvbench.errors import UserError
from kvbench.records.manifest import read_manifests
from kvbench.utils.files import below
from kvbench.utils.model_keys import IDENTIFYING
from kvbench.utils.versions import raised

# Columns that `load` adds to every record. Compared records should agree in all of them.
PROVENANCE = (
    "weights",  # the hub's revision, or a hash over the hashes of a folder's files
    "chat_template",
    *IDENTIFYING,  # of conf/model, as JSON
    "dtype",
    "device",
    "processor",  # the run's GPUs, or the CPU of a run without one
    "kvbench",
    "git",
    "plugins",  # versions of the plug-ins whose classes made the records, as JSON
    "torch",
    "transformers",
    "kernels",  # torch or triton
    "sdpa",  # torch's backend of a prompt's attention
    "data_sha256",
    "first_token",  # full, the prefill's, or compressed
    "versions",  # above 1, of the benchmark and its metrics, as JSON; versions of methods are in `parameters`
)


def provenance(manifest: dict[str, Any]) -> dict[str, str | None]:
    """The PROVENANCE of a manifest, the start of its run and the checkpoint's dtype; None for fields it lacks."""
    packages = manifest.get("packages") or {}
    values = {
        "weights": weights(manifest.get("model") or {}),
        **{name: json.dumps(manifest.get(name) or {}, sort_keys=True) for name in (*IDENTIFYING, "plugins")},
        "versions": _versions(manifest) if manifest else None,
        "dtype": dtype(manifest),
        "processor": processor(manifest.get("device"), manifest.get("hardware") or {}),
        "first_token": manifest.get("first_token", "full") if manifest else None,
        "torch": packages.get("torch"),
        "transformers": packages.get("transformers"),
    }
    beside = {"started": manifest.get("started"), "checkpoint_dtype": checkpoint_dtype(manifest)}
    return beside | {name: values.get(name, manifest.get(name)) for name in PROVENANCE}


def checkpoint_dtype(manifest: dict[str, Any]) -> str | None:
    """The dtype in which the checkpoint is published; None for a GGUF file, of which manifests had its conversion's."""
    model = (manifest.get("config") or {}).get("model") or {}
    embedded = model.get("embedded") and model.get("path") is None  # a pack says that it has left a path out
    is_gguf = embedded or str(manifest.get("weights_format")).endswith(" GGUF")
    return None if is_gguf else manifest.get("checkpoint_dtype")


def _versions(manifest: dict[str, Any]) -> str:
    return json.dumps(raised((manifest.get("versions") or {}).get("benchmark") or {}), sort_keys=True)


def weights(model: dict[str, Any]) -> str | None:
    if "files" in model:
        return hashlib.sha256(json.dumps(model["files"], sort_keys=True).encode()).hexdigest()[:16]
    return model.get("revision")


def dtype(manifest: dict[str, Any]) -> str | None:
    """torch's name of the dtype that the model computes in, after the format of its weights where that differs."""
    computes, stored = manifest.get("dtype"), manifest.get("weights_format")
    return f"{stored} weights, {computes}" if computes and stored else computes


def model_name(name: str, manifests: Sequence[Mapping[str, Any]]) -> str:
    """The model of a run's records, with the folder of model.path where a preset's weights gave way to it."""
    manifest = manifests[0] if manifests else {}
    model = (manifest.get("config") or {}).get("model") or {}
    source = (manifest.get("model") or {}).get("source")
    return with_folder(name, model, source)


def with_folder(name: str, model: Mapping[str, Any], folder: str | None) -> str:
    """A model's name, with the folder of model.path where a preset's weights, of `model`, gave way to it."""
    preset = model.get("hub_id") or model.get("embedded")
    return f"{name} from {folder}" if model.get("path") and preset and folder else name


def processor(device: str | None, hardware: dict[str, Any]) -> str | None:
    gpus = hardware.get("gpus") or []
    if device == "cpu" or not gpus:
        return hardware.get("cpu")
    counts = {name: gpus.count(name) for name in gpus}
    return ", ".join(name if count == 1 else f"{count} × {name}" for name, count in counts.items())


def manifests(*folders: str | Path) -> pd.DataFrame:
    """One row per run below the folders: PROVENANCE, how the run went, and its whole manifest as a dict."""
    paths = {path.parent for folder in folders for path in below(Path(folder), "manifests")}
    if not paths:
        raise UserError(f"{', '.join(map(str, folders)) or 'no folder'} holds no manifests")
    outcome = ("status", "ended", "wall_seconds", "records")
    return pd.DataFrame(
        [
            {"folder": str(folder), "run": run}
            | provenance(manifest)
            | {name: manifest.get(name) for name in outcome}
            | {"manifest": manifest}
            for folder in sorted(paths)
            for run, manifest in read_manifests(folder)[0].items()
        ]
    )


ADDED = frozenset({"folder", *provenance({})})  # columns that `load` adds to every record
