"""The shape of a composed configuration: which keys are mappings, which are single values, and which may be null.

Everything that reads a configuration relies on it, so it is checked once, before anything else.
"""

from collections.abc import Mapping

from kvbench.errors import UserError

NODE, TEXT, LIST, ONE, NULL = "a mapping {KEY: VALUE}", "a text", "a list", "a single value", "null"

# The keys of conf/config.yaml, and what each may be.
SHAPE: dict[str, tuple[str, ...]] = {
    "ratio": (ONE, LIST, NULL),
    "budget": (ONE, LIST, NULL),
    "method": (NODE,),
    "press": (TEXT, NULL),
    "press_args": (NODE, NULL),
    "probe": (NODE,),
    "limit": (ONE, NULL),
    "question": (ONE,),
    "first_token": (ONE,),
    "memory": (ONE,),
    "distance": (ONE,),
    "kernels": (ONE,),
    "prefill": (NODE,),
    "prefill.chunk": (ONE, NULL),
    "decode": (NODE,),
    "decode.compress": (NODE, NULL),
    "decode.batch": (ONE,),
    "wandb": (NODE,),
    "wandb.mode": (ONE,),
    "wandb.project": (ONE, NULL),
    "wandb.entity": (ONE, NULL),
    "shards": (ONE,),
    "shard": (ONE,),
    "experiment": (NODE, NULL),
    "engine": (NODE, NULL),
    "output_dir": (TEXT,),
}
# Groups that `~model` takes out: whoever needs one says that it is missing.
GROUPS = ("model", "benchmark")
DIGITS = 18  # of a whole number, so that it fits into 64 bits


def check_shape(cfg: Mapping) -> None:
    """Raise UserError with the first key that is missing or of another kind, and for numbers beyond 64 bits."""
    for key, allowed in SHAPE.items():
        node, _, name = key.rpartition(".")
        inside = cfg[node] if node else cfg
        if name not in inside:
            raise UserError(f"{key} is missing: leave out ~{key}")
        _check_kind(key, inside[name], allowed)
    for key in GROUPS:
        if key in cfg:
            _check_kind(key, cfg[key], (NODE, NULL))
    _check_numbers(cfg)


def _check_kind(key: str, value: object, allowed: tuple[str, ...]) -> None:
    found = _kind(value)
    if found not in allowed and not (found == TEXT and ONE in allowed):
        raise UserError(f"{key}={value!r} must be {' or '.join(allowed)}")


def _kind(value: object) -> str:
    kinds = ((Mapping, NODE), (str, TEXT), (list | tuple, LIST))
    return NULL if value is None else next((kind for type_, kind in kinds if isinstance(value, type_)), ONE)


def _check_numbers(node: object, path: str = "") -> None:
    if isinstance(node, Mapping):
        for key, value in node.items():
            _check_numbers(value, f"{path}.{key}".lstrip("."))
    elif isinstance(node, list | tuple):
        for value in node:
            _check_numbers(value, path)
    elif isinstance(node, int) and not -(10**DIGITS) < node < 10**DIGITS:
        raise UserError(f"{path}: a whole number has at most {DIGITS} digits, not {len(str(abs(node)))}")
