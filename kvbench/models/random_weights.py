"""Models of a configuration's shape with random weights, to measure time and memory without a download."""

from collections.abc import Mapping
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from transformers import CONFIG_MAPPING, AutoConfig, AutoModelForCausalLM, PreTrainedModel

from kvbench.errors import UserError
from kvbench.models.attention_interface import ATTENTION
from kvbench.models.reads_alike import takes_attention
from kvbench.models.sane_config import check_sane
from kvbench.utils.device import free_bytes
from kvbench.utils.hashing import digest

SEED = 0


def random_model(config: Mapping[str, Any], dtype: torch.dtype, device: str) -> PreTrainedModel:
    """A causal language model of `config` (model_type and the keys of its transformers configuration).

    The weights are the same for the same configuration, dtype and kind of device. Raises UserError for a configuration
    that transformers does not take, and for a model that does not fit into memory.
    """
    if config.get("model_type") not in CONFIG_MAPPING:
        raise UserError(
            f"model.random.model_type={config.get('model_type')!r} is unknown to transformers, which knows "
            "llama, mistral and qwen2 among others"
        )
    check_sane(config, "model.random")
    try:
        shape = AutoConfig.for_model(**config)
        with torch.device("meta"), takes_attention(str(config["model_type"])):
            outline = AutoModelForCausalLM.from_config(shape, attn_implementation=ATTENTION, dtype=dtype)
    except (TypeError, ValueError, RuntimeError, StrictDataclassError) as error:
        raise UserError(
            f"model.random is not a model's configuration: {str(error).splitlines()[-1].strip()}"
        ) from error
    needed, free = sum(p.nbytes for p in outline.parameters()), free_bytes(device)
    if needed > free:
        raise UserError(
            f"random weights of {needed / 2**30:.1f} GiB do not fit into the {free / 2**30:.1f} GiB that are free: "
            "model.random.num_hidden_layers=2 keeps two layers"
        )
    torch.manual_seed(SEED)
    with torch.device(device):
        return AutoModelForCausalLM.from_config(shape, attn_implementation=ATTENTION, dtype=dtype)


def random_source(config: Mapping[str, Any]) -> str:
    """The text instead of a folder or hub id."""
    return f"random weights, seed {SEED}, configuration {digest(dict(config))}"
