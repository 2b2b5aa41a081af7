"""The format of stored weights, if it is not the dtype in which the model computes."""

import re
from collections.abc import Mapping
from typing import Any

from transformers import PretrainedConfig

from kvbench.models.gguf_file import FORMAT

GGUF = re.compile(r"[A-Z0-9_]{1,20} GGUF")
BITS = {"load_in_4bit": 4, "load_in_8bit": 8}  # bitsandbytes' arguments


def weights_format(config: PretrainedConfig) -> str | None:
    """As a checkpoint or `model.load_args` states: "4-bit bitsandbytes", "fp8", "Q4_K_M GGUF"; None: plain weights."""
    file = getattr(config, FORMAT, None)
    if isinstance(file, str) and GGUF.fullmatch(file):  # a config.json may say anything
        return file
    quantisation = getattr(config, "quantization_config", None)
    if not quantisation:
        return None
    options: Mapping[str, Any] = quantisation if isinstance(quantisation, Mapping) else quantisation.to_dict()
    method = str(getattr(options.get("quant_method"), "value", options.get("quant_method") or "quantised"))
    bits = options.get("bits") or next((count for name, count in BITS.items() if options.get(name)), None)
    return f"{bits}-bit {method}" if bits else method


def manifest_fields(config: PretrainedConfig) -> dict[str, str]:
    """For the manifest: `weights_format`, if there is one."""
    format = weights_format(config)
    return {"weights_format": format} if format else {}
