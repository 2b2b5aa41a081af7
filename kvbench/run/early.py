"""Checks of a configuration's plain values, before torch is imported, which takes seconds."""

from collections.abc import Mapping
from pathlib import Path

from kvbench.errors import UserError
from kvbench.evaluation.requested import ratios_or_budgets
from kvbench.utils.model_override import check_named
from kvbench.utils.model_shape import check_folder_shape
from kvbench.utils.validation import at_least, choice, model_folder

# key -> its values
CHOICES = {
    "question": ("visible", "hidden"),
    "memory": ("shared", "stream"),
    "distance": ("auto", "true", "false"),
    "kernels": ("auto", "torch", "triton"),
    "wandb.mode": ("disabled", "offline", "online"),
}
MODEL_CHOICES = {"dtype": ("auto", "float32", "float16", "bfloat16"), "chat_template": ("auto", "none")}


def check_values(cfg: Mapping) -> None:
    """Raise UserError with the first value that is wrong by itself, or a model.path that is no model's folder."""
    for key, allowed in CHOICES.items():
        value = _at(cfg, key)
        choice(key, str(value).lower() if isinstance(value, bool | int) else value, allowed)
    ratios_or_budgets(cfg["ratio"], cfg["budget"])
    check_batch(_at(cfg, "decode.batch"))
    for key in ("limit", "prefill.chunk"):
        if _at(cfg, key) is not None:
            at_least(key, _at(cfg, key), 1)
    check_shard(cfg["shard"], cfg["shards"])
    if isinstance(model := cfg.get("model"), Mapping):
        check_model(model)


def check_model(model: Mapping) -> None:
    """Refuse model=hf without a model, and a model.path without a model or with another network than the preset's."""
    check_named(model)
    for key in ("dtype", "chat_template"):
        if key in model:
            choice(f"model.{key}", model[key], MODEL_CHOICES[key])
    path, shape = model.get("path"), model.get("shape")
    if not isinstance(path, str):
        return
    try:
        model_folder(path)
    except ValueError as error:
        raise UserError(f"model.path={path!r} must be {error}") from error
    if isinstance(shape, Mapping):
        check_folder_shape(str(model.get("name")), shape, Path(path))


def _at(cfg: Mapping, key: str) -> object:
    node, _, name = key.rpartition(".")
    return (cfg[node] if node else cfg)[name]


def check_batch(value: object) -> None:
    number = int(value) if isinstance(value, str) and value.isdecimal() else value
    if value not in ("auto", "all") and (isinstance(number, bool) or not isinstance(number, int) or number < 1):
        raise UserError(f"decode.batch={value!r} must be auto, all or an integer of at least 1")


def check_shard(shard: object, shards: object) -> None:
    at_least("shards", shards, 1)
    if isinstance(shard, bool) or not isinstance(shard, int) or not 0 <= shard < shards:
        raise UserError(f"shard={shard} must be from 0 to {shards - 1} with shards={shards}")
