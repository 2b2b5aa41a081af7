"""Loaded models: from the Hugging Face hub, a folder, the bundled GGUF file or random weights."""

from kvbench.models.load import LoadedModel, load
from kvbench.models.spec import ModelSpec, model_spec

__all__ = ["LoadedModel", "ModelSpec", "load", "model_spec"]
