"""Whether one model and one version of the code made the folder, and which model that is."""

import re
from collections.abc import Mapping
from functools import lru_cache
from importlib.metadata import version
from typing import Any

from kvbench.configuration.conf import installed_file
from kvbench.models.folder import SINGLE, model_identity
from kvbench.models.random_weights import random_source
from kvbench.records.consistency import WITH
from kvbench.records.provenance import provenance
from kvbench.records.recorded_configuration import recorded
from kvbench.runner.verify.folder import Folder
from kvbench.runner.verify.materials import model_folder_of, offline
from kvbench.runner.verify.places import Places
from kvbench.runner.verify.verdict import Check, Verdict, judged
from kvbench.utils.yaml_files import read_yaml

SHARED = (*WITH, "dtype", "device")
CODE = ("kvbench", "git")  # a table must share these; differences in the others are reported
COMMIT = re.compile("[0-9a-f]{40}")
PRESET = ("hub_id", "embedded", "shape", "parameters", "random")


def one_code(folder: Folder) -> Check:
    """The runs that made records agree in version and commit of kvbench, without uncommitted changes."""
    recorded_runs = {record["run"] for record in folder.records}
    about = [provenance(manifest) for run, manifest in folder.manifests.items() if run in recorded_runs]
    wrong: list[str] = []
    missing: list[str] = []
    for name in SHARED:
        values = sorted({str(origin.get(name)) for origin in about})
        if len(values) > 1:
            (wrong if name in CODE else missing).append(f"records of more than one {name}: {', '.join(values)}")
    if any(str(origin.get("git") or "").endswith("-dirty") for origin in about):
        missing.append("the code had changes that are not in its commit")
    engines = all(recorded(manifest).engine for manifest in folder.manifests.values())
    for name in SHARED:
        if not engines and any(origin.get(name) is None for origin in about):
            missing.append(f"a run does not name its {name}")
    for origin in about:
        commit = str(origin.get("git") or "").removesuffix("-dirty")
        if commit and not COMMIT.fullmatch(commit):
            wrong.append(f"{commit!r} is no commit")
    return judged("code", "version, commit, libraries and machine of every run", wrong, missing)


def one_model(folder: Folder, places: Places) -> Check:
    """The model's name and configuration are a preset's, and its files are the files on this machine."""
    wrong: list[str] = []
    missing: list[str] = []
    proven = True
    for manifest in folder.manifests.values():
        config = recorded(manifest).model
        model = manifest.get("model") or {}
        preset = preset_of(config.get("name"))
        if preset is None:
            missing.append(f"kvbench has no model of the name {config.get('name')!r}")
        private = config.get("path") is not None or ("files" in model and not (preset or {}).get("embedded"))
        if preset and not private:
            # the shape of random weights is the user's to choose, and no trained model is claimed by their name
            stated = config.get("random")
            drawn = stated if preset.get("random") and isinstance(stated, Mapping) else None
            for name in PRESET:
                if config.get(name) != preset.get(name) and not (name == "shape" and "files" in model):
                    other = f"model.{name} is not that of the model {config['name']!r}"
                    (missing if drawn and name == "random" else wrong).append(other)
            source = random_source(drawn) if drawn else preset.get("hub_id")
            if "files" not in model and source != model.get("source"):
                wrong.append(f"the weights are of {model.get('source')!r}, not of {source!r}")
        if not config.get("random") and not model.get("files") and not COMMIT.fullmatch(str(model.get("revision"))):
            missing.append("the weights are not identified: neither files nor a commit of the hub")
        proven &= _against_files(manifest, model, places, private, wrong, missing)
    otherwise = Verdict.PROVEN if proven and folder.manifests else Verdict.PLAUSIBLE
    return judged("model", "name, shape and hashes of the weights", wrong, missing, otherwise)


def _against_files(
    manifest: Mapping[str, Any],
    model: Mapping[str, Any],
    places: Places,
    private: bool,
    wrong: list[Any],
    missing: list[Any],
) -> bool:
    """Whether this machine has the model's files; `private`: the run read them from a folder."""
    if "files" not in model:
        return False
    try:
        with offline():
            folder = model_folder_of(manifest, places)
            local = model_identity(str(folder), "").get("files")
    except Exception:  # whatever a stranger's configuration leads to: the files are not here
        local = None
    if private and not places.get("model.path"):
        missing.append("the weights come from a folder: their hashes fit no published model that is known here")
        return False
    if local is None:
        missing.append("the model's files are not here")
    elif local != model["files"]:
        differ = sorted(name for name in {*local, *model["files"]} if local.get(name) != model["files"].get(name))
        stated_version, installed = (manifest.get("packages") or {}).get("transformers"), version("transformers")
        if recorded(manifest).model.get("embedded") and stated_version != installed and SINGLE not in differ:
            missing.append(
                f"{', '.join(differ)}: made by transformers {stated_version}, and here by {installed}, of one file"
            )
        else:
            wrong.append(f"the model's files are others than those here: {', '.join(differ)}")
    return bool(local == model["files"])


def preset_of(name: object) -> Mapping[str, Any] | None:
    """conf/model/NAME.yaml; None for a name that neither kvbench nor a plug-in has."""
    return _preset(name) if isinstance(name, str) else None


@lru_cache(64)
def _preset(name: str) -> Mapping[str, Any] | None:
    path = installed_file("model", name)
    if path is None:  # a file of --config-dir is the user's alone
        return None
    content = read_yaml(path)
    return {str(key): value for key, value in content.items()} if isinstance(content, dict) else None
