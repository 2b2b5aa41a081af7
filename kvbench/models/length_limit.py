"""How long a text may be by a model's positions, beside what a user asks for."""

import math
from collections.abc import Mapping
from typing import Any

from torch import nn
from transformers import PretrainedConfig, PreTrainedModel

from kvbench.configuration import ModelSpec
from kvbench.errors import UserError
from kvbench.utils.console import warn

BEHIND = 16  # rows that a table of positions may have beside one for each: OPT's begins with two for padding


def check_length(spec: ModelSpec, model: PreTrainedModel) -> None:
    """Warn where model.max_length is beyond a model's positions; UserError where these are a table that ends there."""
    longest = reach(model.config)
    if spec.max_length is None or longest is None or spec.max_length <= longest:
        return
    beyond = f"model.max_length={spec.max_length} is beyond the {longest} tokens that {spec.name} has positions for"
    if learned(model, longest):
        raise UserError(f"{beyond}: they are learned, and no further ones exist")
    warn(f"{beyond} (max_position_embeddings): answers may be poor; model.load_args can scale its rotation")


def reach(config: PretrainedConfig) -> int | None:
    """Tokens that a configuration has positions for, with the factor of a scaled rotation; None: it does not say."""
    text = config.get_text_config(decoder=True)
    length = getattr(text, "max_position_embeddings", None)
    if not isinstance(length, int) or length < 1:
        return None
    parameters: Mapping[str, Any] = getattr(text, "rope_parameters", None) or {}
    by_type = [one for one in parameters.values() if isinstance(one, Mapping)]  # of each type of layers
    return max([length, *(scaled(one, length) for one in by_type or [parameters])])


def scaled(parameters: Mapping[str, Any], length: int) -> int:
    """The tokens that rotation with these parameters reaches; 0 where it is not scaled."""
    factor, original = parameters.get("factor"), parameters.get("original_max_position_embeddings") or length
    numbers = all(isinstance(x, int | float) and math.isfinite(x) for x in (factor, original))
    return int(factor * original) if numbers and factor is not None else 0


def learned(model: PreTrainedModel, longest: int) -> bool:
    """Whether a model has a table with a row for each position."""
    tables = (part for part in model.modules() if isinstance(part, nn.Embedding))
    words = model.get_input_embeddings()
    return any(table is not words and longest <= table.num_embeddings < longest + BEHIND for table in tables)
