"""The model, versions and protocol that make a folder's answers again, or the reason why this machine lacks them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import torch
import transformers

from kvbench.configuration.configuration import check_some
from kvbench.configuration.model_spec import model_spec
from kvbench.errors import UserError
from kvbench.evaluation.record import MethodRun
from kvbench.evaluation.settings import Setting
from kvbench.models import ModelSpec, load
from kvbench.models.folder import model_identity
from kvbench.records.identity import identity_of
from kvbench.records.recorded_configuration import recorded
from kvbench.runner.kernels import check_decoding, check_kernels
from kvbench.runner.manifest import all_versions
from kvbench.runner.verify.check_code import COMMIT, preset_of
from kvbench.runner.verify.folder import Folder
from kvbench.runner.verify.known_classes import settings_of
from kvbench.runner.verify.materials import Materials, benchmark_of, model_folder_of, offline
from kvbench.runner.verify.places import Places
from kvbench.utils.hashing import digest
from kvbench.utils.plugins import plugins
from kvbench.utils.release import __version__

DTYPES: dict[str, Literal["float32", "float16", "bfloat16"]] = {
    "torch.float32": "float32",
    "torch.float16": "float16",
    "torch.bfloat16": "bfloat16",
}


class How(NamedTuple):
    """The options that decide in which order a run rounds its sums."""

    chunk: Any  # prefill.chunk
    batch: Any  # decode.batch
    engine: Any  # decode.engine
    kernels: Any


class NotHere(Exception):
    """Why a folder's answers cannot be made again on this machine, in one line."""


def the_manifest(folder: Folder) -> dict[str, Any]:
    """A manifest of the runs that made the folder's answers; they agree in all that answers depend on.

    Raises NotHere where this version of kvbench, or this machine, cannot repeat them.
    """
    runs = {record["run"] for record in folder.methods}
    if not runs:
        raise NotHere("records of engines, probes and speed are not made again")
    manifests = [manifest for run, manifest in folder.manifests.items() if run in runs]
    protocols = {digest(identity_of(manifest), how_of(manifest)) for manifest in manifests}
    if len(manifests) < len(runs) or len(protocols) != 1:
        raise NotHere("its runs are of different models, data or protocols, or have no manifest")
    installed = {plugin.distribution: plugin.version for plugin in plugins()}
    for manifest in manifests:
        if manifest.get("kvbench") != __version__:
            raise NotHere(f"kvbench {manifest.get('kvbench')} made it, and this is {__version__}")
        for name, release in (manifest.get("plugins") or {}).items():
            if installed.get(name) != release:
                raise NotHere(f"the plug-in {name} {release} made it, and here is {installed.get(name, 'none')}")
    manifest = manifests[0]
    if str(manifest.get("dtype")) not in DTYPES:
        raise NotHere(f"the dtype {manifest.get('dtype')!r} is none that models are loaded in")
    if manifest.get("device") not in ("cpu", "cuda"):
        raise NotHere(f"the device {manifest.get('device')!r} is none that models run on")
    if manifest["device"] == "cuda" and not torch.cuda.is_available():
        raise NotHere("a GPU made it, and none is here")
    return manifest


def how_of(manifest: Mapping[str, Any]) -> How:
    """The unchecked options of a run's manifest; a key that its version did not have is `auto`."""
    config = manifest.get("config") or {}
    decode = config.get("decode") or {}
    chunk = (config.get("prefill") or {}).get("chunk")
    return How(chunk, decode.get("batch", "auto"), decode.get("engine", "auto"), config.get("kernels", "auto"))


def the_settings(folder: Folder) -> dict[str, Setting]:
    """The settings of the runs that made answers, by their hash. Raises NotHere where one cannot be built here."""
    runs = {record["run"] for record in folder.methods}
    try:
        settings = [setting for run in runs for setting in settings_of(recorded(folder.manifests[run]))]
    except Exception as error:  # a stranger's configuration can raise anything
        raise NotHere(f"its settings cannot be built here: {_line(error)}") from error
    return {digest(setting.key): setting for setting in settings}


def the_run(
    manifest: Mapping[str, Any], settings: Sequence[Setting], materials: Materials, places: Places, distance: bool
) -> MethodRun:
    """A run that makes records like the folder's, with the model loaded. Raises NotHere where it cannot."""
    if materials.samples is None:
        raise NotHere("; ".join(materials.missing))
    config = recorded(manifest)
    chunk, batch, engine, kernels = how_of(manifest)
    order = {"prefill.chunk": chunk, "decode.batch": batch, "decode.engine": engine, "kernels": kernels}
    protocol = {"question": config.question, "first_token": config.first_token, "memory": config.memory}
    try:
        check_some(order | protocol)
    except UserError as error:
        raise NotHere(_line(error)) from error
    try:
        with offline():
            spec = _spec(manifest, places)
            check_kernels(kernels, spec.resolve_device())
            check_decoding(str(engine), spec)
            benchmark = benchmark_of(manifest, places)
            transformers.logging.set_verbosity_error()
            transformers.utils.logging.disable_progress_bar()
            loaded = load(spec)
    except NotHere:
        raise
    except Exception as error:  # a stranger's configuration can raise anything in libraries
        raise NotHere(f"its model or benchmark: {_line(error)}") from error
    run = MethodRun(
        "again",
        digest(identity_of(manifest)),
        loaded,
        benchmark,
        settings,
        memory=config.memory,
        question=str(config.question),
        first_token=config.first_token,
        chunk=chunk,
        distance=distance,
        batch=str(batch),
        decode_engine=str(engine),
    )
    recorded_versions = (manifest.get("versions") or {}).get("benchmark") or {}
    versions = all_versions(run)["benchmark"]
    if recorded_versions != versions:
        raise NotHere(f"versions of benchmark and metrics are {versions} here, and {recorded_versions} there")
    return run


def _spec(manifest: Mapping[str, Any], places: Places) -> ModelSpec:
    """The model with its files on this machine, in the dtype and on the kind of device that made the records."""
    node, model = recorded(manifest).model, manifest.get("model") or {}
    if node.get("random"):
        raise NotHere("random weights are not drawn for a folder")
    if node.get("load_args") and node.get("load_args") != (preset_of(node.get("name")) or {}).get("load_args"):
        raise NotHere("its load_args are those of no model that kvbench has")
    folder = model_folder_of(manifest, places)
    if "files" in model:
        if model_identity(str(folder), "").get("files") != model["files"]:
            raise NotHere("the model's files here are others")
    elif not places.get("model.path") and not COMMIT.fullmatch(str(model.get("revision"))):
        raise NotHere("the weights are not identified: neither files nor a commit of the hub")
    dtype, device = DTYPES[str(manifest["dtype"])], manifest["device"]
    return replace(model_spec(node), path=str(folder), dtype=dtype, device=device, device_map=None)


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]
