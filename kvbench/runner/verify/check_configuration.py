"""Whether a manifest agrees with its run's configuration, and whether kvbench accepts that configuration."""

from collections.abc import Iterator, Mapping
from typing import Any

from kvbench.configuration import Configuration
from kvbench.errors import UserError
from kvbench.records.pack import LEFT_OUT
from kvbench.records.recorded_configuration import recorded
from kvbench.runner.manifest import identifying
from kvbench.runner.verify.verdict import Note, missing, wrong
from kvbench.utils.model_keys import IDENTIFYING
from kvbench.utils.places import PLACES

NO_ACCOUNT = {"mode": "disabled", "project": "kvbench", "entity": None}  # in place of the account that packs leave out
CPU_DTYPE = "torch.float32"  # of model.dtype=auto without a GPU


def configured(manifest: Mapping[str, Any]) -> Iterator[Note]:
    """The settings that decide prompts, caches and answers, by manifest and configuration."""
    yield from _parsed(manifest)
    config = recorded(manifest)
    model = config.model
    benchmark = identifying(config.benchmark)
    stated_benchmark = {key: value for key, value in (manifest.get("benchmark") or {}).items() if key not in PLACES}
    for name, expected, stated in (
        ("benchmark", benchmark, stated_benchmark),
        ("question", config.question, manifest.get("question")),
        ("first_token", config.first_token, manifest.get("first_token", "full")),
        ("memory", config.memory, manifest.get("memory", "shared")),
        ("chat_template", model.get("chat_template"), manifest.get("chat_template")),
        *((name, model.get(name) or None, manifest.get(name) or None) for name in IDENTIFYING),
    ):
        if expected != stated:
            yield wrong(f"its {name} is not that of its configuration")
    yield from _device(manifest, str(model.get("device")))
    yield from _dtype(manifest, str(model.get("dtype")))


def _parsed(manifest: Mapping[str, Any]) -> Iterator[Note]:
    """The configuration, checked as a command checks it."""
    config = {**(manifest.get("config") or {})}
    if config.get("wandb") == LEFT_OUT:
        config["wandb"] = NO_ACCOUNT
    try:
        Configuration.from_plain(config)
    except (UserError, TypeError) as error:
        yield missing(f"its configuration is none that this version takes: {error}")


def _device(manifest: Mapping[str, Any], requested: str) -> Iterator[Note]:
    device, gpus = str(manifest.get("device")), (manifest.get("hardware") or {}).get("gpus")
    if requested != "auto" and requested.partition(":")[0] != device:
        yield wrong(f"it ran on {device!r}, but its configuration has {requested!r}")
    if device == "cuda" and gpus == []:
        yield wrong("it ran on a GPU of a machine without any")


def _dtype(manifest: Mapping[str, Any], requested: str) -> Iterator[Note]:
    dtype = manifest.get("dtype")
    if requested == "auto" and manifest.get("device") != "cpu":
        return  # the checkpoint's; FullKV's bytes are compared with it
    expected = CPU_DTYPE if requested == "auto" else f"torch.{requested}"
    if dtype != expected:
        yield wrong(f"its weights are {dtype}, but its configuration makes them {expected}")
