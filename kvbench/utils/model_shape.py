"""A preset's `shape`, the network that its name means, compared with config.json before any weights are read."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kvbench.errors import UserError, unknown
from kvbench.utils.numbers import is_number
from kvbench.utils.regular_files import read_bytes

NUMBERS = ("num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim", "vocab_size")
OF_LATENTS = ("kv_lora_rank", "qk_rope_head_dim")  # of models with latent attention


def model_shape(shape: Mapping[str, Any]) -> Mapping[str, Any]:
    """A shape whose keys are NUMBERS or OF_LATENTS, each a positive integer. Raises UserError for any other."""
    for name, number in shape.items():
        if name not in (*NUMBERS, *OF_LATENTS):
            raise unknown("key in model.shape", str(name), (*NUMBERS, *OF_LATENTS))
        if not is_number(number) or number != int(number) or number < 1:
            raise UserError(f"model.shape.{name}={number!r} must be an integer of at least 1")
    return shape


def is_gguf(path: str | Path) -> bool:
    """Whether a model's path is a GGUF file, by its name; else it is a folder."""
    return Path(path).suffix.lower() == ".gguf"


def check_folder(path: str) -> None:
    """Raise UserError if a model's folder is not in the hub's layout."""
    if not (Path(path) / "config.json").is_file():
        raise UserError(f"model.path={path!r} must be a folder with a config.json, or a .gguf file")


def check_model_folder(name: str, path: str, shape: Mapping[str, Any] | None) -> None:
    """Raise UserError for a folder without a model, and if its config.json has another shape than `shape`.

    A config.json that cannot be read is reported when the model is loaded.
    """
    if is_gguf(path) and Path(path).expanduser().is_file():
        return  # its numbers are compared when it is loaded
    check_folder(path)
    if shape is None:
        return
    try:
        config = json.loads(read_bytes(Path(path) / "config.json"))
    except (OSError, ValueError, RecursionError):
        return
    if isinstance(config, dict):
        check_shape(name, shape, config, path)


def check_shape(name: str, shape: Mapping[str, Any], config: Mapping[str, Any], source: str) -> None:
    """Raise UserError if a network's configuration has another shape than the preset `name`.

    Numbers that a configuration leaves out are not compared.
    """
    numbers = shape_of(config)
    differences = [
        f"{key} {numbers[key]}, not {expected}"
        for key, expected in model_shape(shape).items()
        if numbers.get(key) not in (None, expected)
    ]
    if differences:
        local = Path(source).is_dir()
        raise UserError(
            f"model={name}: {source} is a different network ({'; '.join(differences)}); "
            f"model={Path(source).absolute() if local else source} runs it under its own name, and model.shape=null "
            "skips the comparison"
        )


def shape_of(config: Mapping[str, Any]) -> dict[str, int | None]:
    """The NUMBERS of a config.json, or of its text model, None for missing ones; and the OF_LATENTS that it has."""
    text = config.get("text_config")
    config = text if isinstance(text, Mapping) else config
    numbers: dict[str, Any] = {name: config.get(name) for name in NUMBERS}
    heads, width = numbers["num_attention_heads"], config.get("hidden_size")
    if numbers["num_key_value_heads"] is None:
        numbers["num_key_value_heads"] = heads
    if numbers["head_dim"] is None and is_number(heads) and is_number(width) and heads > 0:
        numbers["head_dim"] = width // heads
    return numbers | {name: config[name] for name in OF_LATENTS if config.get(name) is not None}


def stores_latents(shape: Mapping[str, Any]) -> bool:
    """Whether a shape's layers store a latent and a rotated key for all heads."""
    return {*OF_LATENTS} <= shape.keys()


def token_numbers(shape: Mapping[str, Any]) -> int:
    """How many numbers FullKV stores of a token in a layer of this shape."""
    if stores_latents(shape):
        return sum(shape[name] for name in OF_LATENTS)
    return int(2 * shape["num_key_value_heads"] * shape["head_dim"])
