"""Numbers of a model's configuration that no model has: refused before networks of that size are laid out."""

from collections.abc import Mapping
from typing import Any

from kvbench.errors import UserError

# A network is laid out layer by layer before its weights are read.
MOST = {"num_hidden_layers": 10_000, "num_layers": 10_000, "n_layer": 10_000, "num_experts": 100_000}
MOST |= {"num_local_experts": 100_000, "n_routed_experts": 100_000}


def check_sane(config: Mapping[str, Any], where: str) -> None:
    """Raise UserError for more layers or experts than any model has, also in a configuration inside this one."""
    for key, value in config.items():
        if isinstance(value, Mapping):
            check_sane(value, where)
        elif key in MOST and isinstance(value, int) and value > MOST[key]:
            raise UserError(f"{where} has {key}={value}: kvbench reads models with at most {MOST[key]:,}")
