"""Fields of a model's generation configuration with which `generate` chooses other tokens than the likeliest."""

import reprlib
import warnings
from collections.abc import Collection
from typing import Any

import torch
from transformers import GenerationConfig, PretrainedConfig
from transformers.generation import GenerationMixin, GenerationMode

from kvbench.utils.console import warn

# They change logits, but not which is the largest.
SAME_TOKEN = ("renormalize_logits", "remove_invalid_values", "do_sample")


class Choosing(GenerationMixin):
    """What `generate` asks of a model to make its logits processors, without weights: an engine may have them."""

    def __init__(self, config: PretrainedConfig):
        self.config = config


def warn_of_other_choices(
    name: str, generation: GenerationConfig, config: PretrainedConfig, stop_tokens: Collection[int]
) -> None:
    """Say which fields of its generation configuration the model called `name` does not follow in kvbench."""
    stated: dict[str, Any] = generation.to_diff_dict()
    model = Choosing(config)
    fields = {field: value for field, value in stated.items() if _changes(field, value, model, stop_tokens)}
    if fields:
        listed = ", ".join(f"{field}={reprlib.repr(fields[field])}" for field in sorted(fields))
        warn(
            f"the generation configuration of {name} has {listed}, which `generate` follows and kvbench does not: "
            "tokens are chosen by the model's logits alone"
        )


def _changes(field: str, value: object, model: Choosing, stop_tokens: Collection[int]) -> bool:
    """Whether `generate`, told not to draw tokens, processes logits or searches because of this field alone."""
    if field in SAME_TOKEN:
        return False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            config = GenerationConfig(**{field: value})
            config._eos_token_tensor = torch.tensor(sorted(stop_tokens))
            processors = model._get_logits_processor(config, input_ids_seq_length=1, device="cpu")
        except (ValueError, TypeError):  # `generate` would refuse the value
            return True
        return bool(processors) or config.get_generation_mode() != GenerationMode.GREEDY_SEARCH
