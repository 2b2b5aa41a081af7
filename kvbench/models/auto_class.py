"""Which of transformers' classes loads a checkpoint: a causal language model's, or a whole one of images and text."""

from typing import Any, NamedTuple

import torch
import transformers
from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    PretrainedConfig,
)

from kvbench.errors import UserError
from kvbench.ops.rope import text_decoder
from kvbench.utils.console import warn

# Checkpoints of several media of which the text model alone is loaded, by model_type, with the weights that are left
# out: their image encoders need packages of their own, so that transformers cannot say which these are.
TEXT_ALONE = {"gemma3n": ("model.vision_tower.", "model.audio_tower.", "model.embed_vision.", "model.embed_audio.")}


class Chosen(NamedTuple):
    auto: Any  # the class whose from_pretrained loads the checkpoint
    config: PretrainedConfig | None  # the configuration to load it with; None: its own
    left_out: tuple[str, ...]  # beginnings of the names of weights that have no place in the model on purpose


def class_for(name: str, config: PretrainedConfig) -> Chosen:
    """The class that loads the model `name` of this configuration.

    A checkpoint of images and text whose class of text alone has other names for its weights is loaded whole, and a
    line says so. Raises UserError for what is no language model.
    """
    if config.model_type in TEXT_ALONE:
        left_out = TEXT_ALONE[config.model_type]
        return Chosen(AutoModelForCausalLM, config.get_text_config(decoder=True), left_out)
    if type(config) in MODEL_FOR_CAUSAL_LM_MAPPING:
        return Chosen(AutoModelForCausalLM, None, beside_text(config))
    if type(config) in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING:
        warn(f"{name} ({config.model_type}) is a model of images and text: all of it is loaded, and its text part runs")
        return Chosen(AutoModelForImageTextToText, None, ())
    raise UserError(
        f"model {name!r} has model_type {config.model_type!r}, for which transformers {transformers.__version__} has "
        "no causal language model"
    )


def beside_text(config: PretrainedConfig) -> tuple[str, ...]:
    """The names of the weights that a checkpoint of images and text has beside its language model; none for a
    configuration of text, and where a package is missing without which it has no outline."""
    of_images = MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING.get(type(config), None)
    if of_images is None or of_images is MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]:
        return ()
    try:
        with torch.device("meta"):
            outline = of_images(config)
    except (ImportError, ValueError):
        return ()
    text = {id(weights) for weights in (*text_decoder(outline).parameters(), *text_decoder(outline).buffers())}
    head = outline.get_output_embeddings()
    text |= {id(weights) for weights in (() if head is None else head.parameters())}
    return tuple(name for name, weights in outline.state_dict(keep_vars=True).items() if id(weights) not in text)
