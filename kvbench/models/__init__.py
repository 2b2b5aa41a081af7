"""Loaded models: from the Hugging Face hub, a folder, the bundled GGUF file or random weights."""

from kvbench.configuration.model_spec import ModelSpec, model_spec
from kvbench.models.load import LoadedModel, load, load_texts
from kvbench.models.reader import Reader, TextModel

__all__ = ["LoadedModel", "ModelSpec", "Reader", "TextModel", "load", "load_texts", "model_spec"]
