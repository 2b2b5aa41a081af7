"""Configurations to refuse: networks of a size that no model has, and code to fetch."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from kvbench.errors import UserError

# A network is laid out layer by layer before its weights are read.
MOST = {"num_hidden_layers": 10_000, "num_layers": 10_000, "n_layer": 10_000, "num_experts": 100_000}
MOST |= {"num_local_experts": 100_000, "n_routed_experts": 100_000}

# Keys that choose code: if one of them names org/kernel, transformers fetches it from the hub and runs it.
CODE = re.compile("implementation|kernel", re.IGNORECASE)


def check_sane(config: Mapping[str, Any], where: str) -> None:
    """Raise UserError for more layers or experts than any model has, and for kernels of the hub, even in an inner
    configuration.
    """
    for key, value in config.items():
        inside = value if isinstance(value, list) else [value]
        for node in inside:
            if isinstance(node, Mapping):
                check_sane(node, where)
        if key in MOST and isinstance(value, int) and value > MOST[key]:
            raise UserError(f"{where} has {key}={value}: kvbench reads models with at most {MOST[key]:,}")
        if CODE.search(str(key)) and (named := next((text for text in _texts(value) if "/" in text), None)):
            raise UserError(f"{where} has {key}={named!r}, code from the hub, which kvbench does not run: leave it out")


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list):
        for inner in value.values() if isinstance(value, Mapping) else value:
            yield from _texts(inner)
