"""Rotary frequencies that change with the length of the text: dynamic NTK and LongRoPE."""

from typing import NamedTuple

from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel

from kvbench.ops.rope import embeddings_of, rope_type, types_of, varies_with_length


class Growth(NamedTuple):
    """The change of frequencies beyond a length.

    kind     rope_type, in transformers' words.
    length   the longest text, in tokens, that is rotated with the frequencies of training.
    settles  whether all longer texts have the same frequencies (LongRoPE); if not, each length has its own.
    """

    kind: str
    length: int
    settles: bool

    def __str__(self) -> str:
        return varies_with_length(self.kind)

    def splits(self, context: int, end: int) -> bool:
        """Whether some keys of a text are rotated with other frequencies than later queries: its first `context` tokens
        are read in one pass, the others, up to `end`, after them."""
        return end > max(self.length, context) and (context <= self.length or not self.settles)


def growth_of(model: PreTrainedModel) -> Growth | None:
    """How a model's frequencies change with the length of the text; None: they do not."""
    config = model.config.get_text_config(decoder=True)
    growths = []
    for embedding in embeddings_of(model):
        for layer_type in types_of(embedding):
            kind = rope_type(embedding, layer_type)
            if varies_with_length(kind):
                if kind == "longrope":
                    growths.append(Growth(kind, _length(config, layer_type), True))
                else:
                    growths.append(Growth(kind, int(embedding.original_max_seq_len), False))
    return min(growths, key=lambda growth: growth.length, default=None)


def longrope_length(config: PreTrainedConfig) -> int | None:
    """The longest text that LongRoPE rotates with its first frequencies, in the configuration of a text model whose
    layers rotate alike; None for other rotations."""
    parameters = getattr(config, "rope_parameters", None) or {}
    return _length(config, None) if parameters.get("rope_type") == "longrope" else None


def _length(config: PreTrainedConfig, layer_type: str | None) -> int:
    parameters = config.rope_parameters[layer_type] if layer_type else config.rope_parameters
    return int(parameters["original_max_position_embeddings"])


def forget_lengths(model: PreTrainedModel) -> None:
    """Reset dynamic frequencies to the values of training, as before the model read its first text.

    transformers keeps the frequencies of the longest text so far, and uses them for every text that is at least as long
    as the trained length.
    """
    for embedding in embeddings_of(model):
        for layer_type in types_of(embedding):
            if "dynamic" in rope_type(embedding, layer_type):
                _forget(embedding, f"{layer_type}_" if layer_type else "")


def _forget(embedding: nn.Module, prefix: str) -> None:
    trained = embedding.original_max_seq_len
    if getattr(embedding, f"{prefix}max_seq_len_cached", trained) == trained:
        return
    frequencies = getattr(embedding, f"{prefix}original_inv_freq")
    now = getattr(embedding, f"{prefix}inv_freq")
    embedding.register_buffer(f"{prefix}inv_freq", frequencies.to(now.device), persistent=False)
    setattr(embedding, f"{prefix}max_seq_len_cached", trained)
