"""The rotation that a GGUF file states, in the configuration that transformers makes of it.

transformers leaves out the keys of a scaled rotation, and the tensor of divisors as which llama.cpp's converter writes
Llama-3's scaling. Keys mean what llama.cpp makes of them.
"""

from typing import Any

import numpy as np
from gguf import GGUFReader
from numpy.typing import NDArray
from transformers import PreTrainedModel

from kvbench.errors import UserError
from kvbench.models.gguf_fields import fields_of
from kvbench.ops.rope import FULL, embeddings_of, types_of

SCALING = "rope.scaling."
OLD_FACTOR = "rope.scale_linear"  # before there were several types
TRANSLATED = ("type", "factor", "original_context_length", "yarn_beta_fast", "yarn_beta_slow")
# Values of further keys that change nothing; `finetuned` never does.
NEUTRAL = {"attn_factor": 1, "yarn_attn_factor": 1, "yarn_ext_factor": 1, "yarn_log_multiplier": 0}
DIVISORS = "rope_freqs.weight"
ROUNDING = 1e-5  # of frequencies in float32, as a share
STILL = 1e-12  # radians a token: a channel that is not rotated

Frequencies = NDArray[np.float64]  # [rotary_dim / 2], radians a token


def set_rotation(file: GGUFReader, model: PreTrainedModel) -> None:
    """Make the rotation of a converted model's configuration that of its file.

    Raises UserError for a rotation that transformers cannot compute.
    """
    fields = fields_of(file)
    scaling = scaling_of(fields)
    divisors = next((tensor.data.astype(np.float64) for tensor in file.tensors if tensor.name == DIVISORS), None)
    rotation: dict[str, Any] = getattr(model.config, "rope_parameters", None) or {}
    rotation = rotation.get(FULL, rotation)  # llama.cpp scales no rotation of windows
    if not rotation or not embeddings_of(model):
        if scaling or divisors is not None:
            raise UserError("the file scales a rotation, and transformers' model has none")
        return
    base = fields.get("rope.freq_base", rotation["rope_theta"])
    if base != rotation["rope_theta"]:
        rotation["rope_theta"] = base
    rotation.update(scaling)
    if divisors is None:
        return
    unscaled = float(base) ** -(np.arange(len(divisors)) / len(divisors))
    if not _rotates(model, wanted := unscaled / divisors):
        rotation.update({} if scaling else llama3(divisors, unscaled))
        if not _rotates(model, wanted):
            raise UserError(f"the rotation of its tensor {DIVISORS} is no llama3 scaling of transformers")


def scaling_of(fields: dict[str, Any]) -> dict[str, Any]:
    """transformers' parameters of the scaling that a file's fields state; {} for none.

    Raises UserError for a type or a parameter without an equal.
    """
    stated = {name.removeprefix(SCALING): value for name, value in fields.items() if name.startswith(SCALING)}
    kind = stated.get("type", "linear")
    factor = stated.get("factor", fields.get(OLD_FACTOR)) or 1.0
    if kind not in ("none", "linear", "yarn"):
        raise UserError(f"its {SCALING}type is {kind!r}; kvbench translates linear and yarn")
    for name, value in stated.items():
        if name not in (*TRANSLATED, "finetuned") and value != NEUTRAL.get(name):
            raise UserError(f"it has {SCALING}{name}={value}, which transformers has no parameter for")
    if kind == "none" or factor == 1:
        return {}
    if kind == "linear":
        return {"rope_type": "linear", "factor": factor}
    length = stated.get("original_context_length") or fields.get("context_length")
    betas = {name: stated[f"yarn_{name}"] for name in ("beta_fast", "beta_slow") if f"yarn_{name}" in stated}
    return {"rope_type": "yarn", "factor": factor, "original_max_position_embeddings": length, **betas}


def llama3(divisors: Frequencies, unscaled: Frequencies) -> dict[str, Any]:
    """Parameters of a llama3 scaling, fitted to the divisors of frequencies; {} if too few of them tell.

    1 / divisor is a mean of 1 and 1 / factor, whose weight rises with the frequency, from 0 at low_freq_factor turns in
    the original length to 1 at high_freq_factor turns. Only the quotients of the three are in the divisors: the lowest
    is 1, as in all of Meta's models.
    """
    factor = float(divisors.max())
    between = (divisors > 1) & (divisors < factor)
    if between.sum() < 2:
        return {}
    turns = unscaled[between] / (2 * np.pi)  # a token
    slope, start = np.polyfit(turns, (1 / divisors[between] - 1 / factor) / (1 - 1 / factor), 1)
    if start >= 0:
        return {}
    return {
        "rope_type": "llama3",
        "factor": factor,
        "low_freq_factor": 1.0,
        "high_freq_factor": round(float((start - 1) / start), 3),
        "original_max_position_embeddings": round(float(-slope / start)),
    }


def _rotates(model: PreTrainedModel, wanted: Frequencies) -> bool:
    """Whether a model's configuration gives these frequencies."""
    embedding = embeddings_of(model)[0]
    kind = types_of(embedding)[0]
    made = type(embedding)(model.config)
    found = getattr(made, f"{kind}_inv_freq" if kind else "inv_freq").numpy()
    return found.shape == wanted.shape and np.allclose(found, wanted, ROUNDING, STILL)
