"""A model's folder: its weights, its mistakes before it is loaded, and its identity.

Only safetensors directly inside the folder count as weights. transformers follows an index to any file, even a pickled
one; here such an index is an error.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from transformers.utils.hub import CHAT_TEMPLATE_DIR

from kvbench.errors import UserError
from kvbench.utils.hashing import file_hash
from kvbench.utils.regular_files import is_special, read_bytes

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
WEIGHTS = ".safetensors"
# Suffixes of files that transformers reads: weights, configurations, chat templates and vocabularies.
READ = frozenset({WEIGHTS, ".json", ".jinja", ".model", ".txt", ".tiktoken"})


def weight_files(folder: Path) -> list[Path]:
    """The files with the weights of a folder in the hub's layout. Raises UserError if one is missing, in another place,
    no safetensors file or cut short."""
    index = folder / INDEX
    indexed = index.exists() and not (folder / SINGLE).exists()
    files = [folder / name for name in (_indexed(index) if indexed else [SINGLE])]
    for path in files:
        _check_weights(path)
    return files


def check_config(folder: Path) -> None:
    """Raise UserError if config.json or an existing generation_config.json is no file with a JSON object, or if a file
    to read is a pipe, a device or a link to nothing: transformers goes on without a file that it cannot read."""
    for path in _read_files(folder):
        if is_special(path):
            raise UserError(f"{path} cannot be read: it is a pipe, a socket or a device")
        if not path.exists():
            raise UserError(f"{path} cannot be read: it is a link to nothing")
    _mapping(folder / "config.json")
    if (generation := folder / "generation_config.json").exists():
        _mapping(generation)


def not_json(folder: Path) -> str:
    """The first .json file of a folder that is not JSON; "" for none."""
    for path in sorted(folder.glob("*.json")):
        try:
            json.loads(read_bytes(path))
        except (OSError, ValueError, RecursionError):
            return path.name
    return ""


def model_identity(source: str, revision: str, weights: bool = True) -> dict[str, Any]:
    """The identity of a model, or of its tokenizer alone: the SHA-256 of each file that loading reads from a folder, or
    the hub's revision."""
    folder = Path(source)
    if not folder.is_dir():
        return {"source": source, "revision": revision}
    files = [path for path in _read_files(folder) if path.is_file() and (weights or path.suffix != WEIGHTS)]
    return {"source": folder.name, "files": {path.relative_to(folder).as_posix(): file_hash(path) for path in files}}


def _read_files(folder: Path) -> list[Path]:
    """What transformers may read: files of the folder itself, and chat templates by name in a folder of their own."""
    itself = [path for path in folder.iterdir() if path.suffix in READ]
    return sorted([*itself, *(folder / CHAT_TEMPLATE_DIR).glob("*.jinja")])


def _indexed(index: Path) -> list[str]:
    weights = _mapping(index).get("weight_map")
    if not isinstance(weights, Mapping) or not weights:
        raise UserError(f"{index} has no weight_map that names the files of the weights")
    names = sorted(set(map(str, weights.values())))
    for name in names:
        if Path(name).name != name or not name.endswith(WEIGHTS):
            raise UserError(f"{index} names {name!r}: weights must be .safetensors files in the same folder")
    return names


def _check_weights(path: Path) -> None:
    if not path.is_file():
        problem = "is not a file" if path.exists() or path.is_symlink() else "is missing"
        raise UserError(f"{path} {problem}: a model's folder needs its weights as safetensors")
    try:
        with safe_open(path, framework="pt"):
            pass
    except (SafetensorError, OSError) as error:
        raise UserError(f"{path} cannot be read as safetensors: {error}") from error


def _mapping(path: Path) -> Mapping[str, Any]:
    try:
        value = json.loads(read_bytes(path))
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise UserError(f"{path} is not a JSON object")
    return value
