"""Checks of a rotation's parameters before transformers computes with them."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from kvbench.errors import UserError, unknown
from kvbench.utils.numbers import is_number

STRETCHED = ("linear", "dynamic", "yarn", "llama3")  # types that need a factor
NAMES = ("rope_parameters", "rope_scaling")  # in configurations


def check_rope_parameters(config: Mapping[str, Any], where: str) -> None:
    """Raise UserError for a rotation of an unknown type, and for one that lacks the factor by which it stretches.

    config: a config.json, or arguments that replace parts of one; `where` names it.
    """
    text = config.get("text_config")
    for part in (config, text if isinstance(text, Mapping) else {}):
        for parameters in _rotations(part):
            kind = str(parameters.get("rope_type", parameters.get("type", "default")))
            types = ("default", *ROPE_INIT_FUNCTIONS)
            if kind not in types:
                raise unknown(f"rope_type in {where}", kind, types)
            factor = parameters.get("factor")
            if kind in STRETCHED and not (is_number(factor) and 0 < factor < math.inf):
                raise UserError(
                    f"{where} has a rotation of rope_type {kind!r} with factor={factor!r}: it must be a number above "
                    "0, by which the trained length is stretched"
                )


def _rotations(config: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The parameters of all layers, or of each type of layers (Gemma-3)."""
    for name in NAMES:
        parameters = config.get(name)
        if isinstance(parameters, Mapping):
            by_type = [values for values in parameters.values() if isinstance(values, Mapping)]
            yield from by_type or [parameters]
