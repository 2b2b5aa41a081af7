"""The class of transformers that loads a checkpoint: of a causal language model, or of a model of images and text."""

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

# Checkpoints of several media, by model_type, of which only the text model is loaded, with the weights to leave out:
# transformers cannot list these without the packages that the image encoders need.
TEXT_ALONE = {"gemma3n": ("model.vision_tower.", "model.audio_tower.", "model.embed_vision.", "model.embed_audio.")}


class Chosen(NamedTuple):
    auto: Any  # the class whose from_pretrained loads the checkpoint
    config: PretrainedConfig | None  # the configuration to load it with; None: its own
    left_out: tuple[str, ...]  # prefixes of weights that are left out on purpose


def class_for(name: str, config: PretrainedConfig) -> Chosen:
    """The class that loads the model `name` of this configuration.

    A checkpoint of images and text is loaded whole, with a warning, if the class of its text model has other names for
    the weights. Raises UserError for anything but a language model.
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
    """The names of the weights that a checkpoint of images and text has beside its language model; none for a text
    model, or if a package is missing that the model's outline needs."""
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
