"""The attention implementations of a model and of its parts, put back after others were set."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from transformers import PreTrainedConfig, PreTrainedModel

Implementations = dict[str, Any]  # by the key of a part, nested as the configurations are; "" is the model's own


@contextmanager
def restored_attention(model: PreTrainedModel) -> Iterator[None]:
    """When the block ends, the model and each of its parts (text, images) get back the attention that they had."""
    before = implementations(model.config)
    try:
        yield
    finally:
        model.set_attn_implementation(before)


def implementations(config: PreTrainedConfig) -> str | Implementations:
    """The attention implementation of a configuration and of the configurations in it."""
    parts = {key: getattr(config, key, None) for key in config.sub_configs}
    inner = {key: implementations(part) for key, part in parts.items() if part is not None}
    return {"": config._attn_implementation, **inner} if inner else config._attn_implementation
