"""What a GGUF file states, and what transformers leaves out of it."""

from collections.abc import Mapping
from typing import Any

from gguf import GGUFReader
from transformers import PretrainedConfig, PreTrainedModel
from transformers.modeling_gguf_pytorch_utils import TENSOR_PROCESSORS, TensorProcessor, get_gguf_hf_weights_map

from kvbench.errors import UserError


def fields_of(file: GGUFReader) -> dict[str, Any]:
    """The fields of a file's architecture, without its name: context_length, rope.freq_base, …"""
    prefix = f"{_architecture(file)}."
    return {
        name.removeprefix(prefix): field.contents() for name, field in file.fields.items() if name.startswith(prefix)
    }


def check_window(fields: Mapping[str, Any], config: PretrainedConfig) -> None:
    """Raise UserError for a sliding window that a converted model's configuration does not have."""
    window, length = fields.get("attention.sliding_window"), fields.get("context_length")
    if not window or (length is not None and window >= length):
        return  # llama.cpp's converter writes 0 for none, and some windows end beyond every text
    if getattr(config, "sliding_window", None) != window:
        raise UserError(f"its attention.sliding_window is {window}, which transformers does not read")


def without_place(file: GGUFReader, model: PreTrainedModel) -> set[str]:
    """The names of a file's tensors for which the converted model has no weight."""
    process = TENSOR_PROCESSORS.get(_architecture(file), TensorProcessor)
    placed = get_gguf_hf_weights_map(model, process(config=model.config.to_dict()))
    # Weights of experts in one tensor have names without .weight in transformers.
    return {
        tensor.name for tensor in file.tensors if not {tensor.name, tensor.name.removesuffix(".weight")} & {*placed}
    }


def _architecture(file: GGUFReader) -> str:
    field = file.get_field("general.architecture")
    return "" if field is None else str(field.contents())
