"""What a model's weights are stored in, where it is not the dtype in which the model computes."""

import re
from collections.abc import Mapping
from typing import Any

from transformers import PretrainedConfig

from kvbench.models.gguf_file import FORMAT

GGUF = re.compile(r"[A-Z0-9_]{1,20} GGUF")
BITS = {"load_in_4bit": 4, "load_in_8bit": 8}  # as bitsandbytes has them


def weights_format(config: PretrainedConfig) -> str | None:
    """As a checkpoint or `model.load_args` says: "4-bit bitsandbytes", "fp8", "Q4_K_M GGUF"; None for plain weights."""
    file = getattr(config, FORMAT, None)
    if isinstance(file, str) and GGUF.fullmatch(file):  # a config.json may say anything
        return file
    said = getattr(config, "quantization_config", None)
    if not said:
        return None
    known: Mapping[str, Any] = said if isinstance(said, Mapping) else said.to_dict()
    method = str(getattr(known.get("quant_method"), "value", known.get("quant_method") or "quantised"))
    bits = known.get("bits") or next((count for name, count in BITS.items() if known.get(name)), None)
    return f"{bits}-bit {method}" if bits else method


def told(config: PretrainedConfig) -> dict[str, str]:
    """For the manifest: `weights_format`, where there is one."""
    format = weights_format(config)
    return {"weights_format": format} if format else {}
