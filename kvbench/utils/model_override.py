"""`model=org/name`, `model=/folder` and `model=/file.gguf` on the command line: short for the keys of model=hf."""

import re
from collections.abc import Sequence
from pathlib import Path

from omegaconf import OmegaConf

from kvbench.errors import UserError
from kvbench.utils.model_shape import is_gguf

# A preset's name has no slash.
_FOLDER = re.compile(r"[.~]{0,2}/|[.~]{1,2}$")
_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")


def model_name(path: str | None, hub_id: str | None) -> str | None:
    """The name of a model of model=hf: the hub's id, or the name of its folder or file."""
    if not path:
        return hub_id
    place = Path(path).expanduser().resolve()
    return place.stem if is_gguf(place) else place.name


OmegaConf.register_new_resolver("model_name", model_name, replace=True)


def expanded(overrides: Sequence[str]) -> list[str]:
    """The overrides, with keys of model=hf instead of a short form."""
    return [part for override in overrides for part in _expanded(override)]


def _expanded(override: str) -> list[str]:
    key, _, value = override.partition("=")
    value = value[1:-1] if value[:1] in ("'", '"') and value[-1:] == value[:1] else value
    if key != "model" or value.startswith("["):
        return [override]
    if _FOLDER.match(value):
        quoted = str(Path(value).expanduser()).replace("\\", "\\\\").replace("'", "\\'")
        return ["model=hf", f"model.path='{quoted}'"]
    ids = [_HUB_ID.fullmatch(part.strip()) for part in value.split(",")]
    if any(ids) and not all(ids):
        raise UserError(f"{override}: a sweep takes either presets or org/name, not both")
    return ["model=hf", f"model.hub_id={value}"] if any(ids) else [override]
