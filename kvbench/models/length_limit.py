"""The longest text for which a model has positions, compared with model.max_length."""

import math
from collections.abc import Mapping
from typing import Any

from torch import nn
from transformers import PretrainedConfig, PreTrainedModel

from kvbench.configuration import ModelSpec
from kvbench.errors import UserError
from kvbench.utils.console import warn

EXTRA = 16  # further rows that a table of positions may have: OPT's begins with two for padding


def check_length(spec: ModelSpec, model: PreTrainedModel) -> None:
    """Warn if model.max_length is beyond a model's positions. Raises UserError if they are a table that ends there."""
    longest = reach(model.config)
    if spec.max_length is None or longest is None or spec.max_length <= longest:
        return
    beyond = f"model.max_length={spec.max_length} is beyond the {longest} tokens that {spec.name} has positions for"
    if learned(model, longest):
        raise UserError(f"{beyond}: they are learned, and no further ones exist")
    warn(f"{beyond} (max_position_embeddings): answers may be poor; model.load_args can scale its rotation")


def reach(config: PretrainedConfig) -> int | None:
    """Tokens for which a configuration has positions, with the factor of a scaled rotation; None: not stated."""
    text = config.get_text_config(decoder=True)
    length = getattr(text, "max_position_embeddings", None)
    if not isinstance(length, int) or length < 1:
        return None
    parameters: Mapping[str, Any] = getattr(text, "rope_parameters", None) or {}
    by_type = [values for values in parameters.values() if isinstance(values, Mapping)]  # for each type of layers
    return max([length, *(scaled(values, length) for values in by_type or [parameters])])


def scaled(parameters: Mapping[str, Any], length: int) -> int:
    """The tokens for which a rotation is scaled by these parameters; 0 if it is not scaled."""
    factor, original = parameters.get("factor"), parameters.get("original_max_position_embeddings") or length
    numbers = all(isinstance(x, int | float) and math.isfinite(x) for x in (factor, original))
    return int(factor * original) if numbers and factor is not None else 0


def learned(model: PreTrainedModel, longest: int) -> bool:
    """Whether a model has a table with a row for each position."""
    tables = (part for part in model.modules() if isinstance(part, nn.Embedding))
    words = model.get_input_embeddings()
    return any(table is not words and longest <= table.num_embeddings < longest + EXTRA for table in tables)
