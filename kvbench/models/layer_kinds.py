"""The kinds of a model's layers, which keep all keys and values of a text, a window of them, a state, or nothing."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from transformers import PreTrainedConfig

from kvbench.errors import UserError
from kvbench.models.cache_layers import check_known

FULL, SLIDING, CHUNKED = "full_attention", "sliding_attention", "chunked_attention"
LINEAR = ("linear_attention", "conv")  # recurrent layers and convolutions, in transformers' words
WITHOUT = ("moe", "mlp", "dummy")  # layers that read no other token
# Models whose code in transformers begins a new state with every pass over several tokens.
ONE_BY_ONE = frozenset({"jamba"})


@dataclass(frozen=True)
class LayerKind:
    """One layer.

    keeps     own: its own keys and values; shared: it attends to an earlier layer's; state: tensors of fixed
              size (linear attention, state spaces, convolutions); nothing: it reads no other token.
    window    number of tokens that it attends to, up to the query's own; None: all.
    chunked   whether these begin at the last multiple of `window` tokens.
    readers   how many later layers attend to its keys and values.
    states    how many states of fixed size it has.
    latent    whether it keeps latents, from which the keys and values of all heads are computed (MLA).
    """

    keeps: Literal["own", "shared", "state", "nothing"] = "own"
    window: int | None = None
    readers: int = 0
    states: int = 0
    latent: bool = False
    chunked: bool = False

    @property
    def attends(self) -> bool:
        return self.keeps in ("own", "shared")

    @property
    def compressed(self) -> bool:
        """Whether methods compress it: it keeps keys and values of all tokens."""
        return self.keeps == "own" and self.window is None


Kinds = tuple[LayerKind, ...]  # by layer, lowest first


def kinds_of(config: PreTrainedConfig) -> Kinds:
    """The kind of each layer of a model's configuration. A window as long as the longest text counts as none.

    Raises UserError for layers of other kinds (indexed attention, attention beside a state in one layer), for kinds
    that an older transformers does not know, for windows of latents, and for a model without attention.
    """
    config = config.get_text_config(decoder=True)
    count, window = config.num_hidden_layers, getattr(config, "sliding_window", None)
    types = getattr(config, "layer_types", None) or [FULL if window is None else SLIDING] * count
    if unsupported := sorted(set(types) - {FULL, SLIDING, CHUNKED, *LINEAR, *WITHOUT}):
        raise UserError(f"this model has layers of {unsupported[0]!r}, for which kvbench has no cache")
    if not {FULL, SLIDING} & set(types):
        raise UserError("this model has no layer with attention, and thus no keys and values to compress")
    if getattr(config, "num_kv_shared_layers", None) and getattr(config, "kv_sharing_modes", None) is None:
        raise UserError("this model has layers that read other layers' keys and values, and does not say which")
    longest = getattr(config, "max_position_embeddings", None)
    if window is not None and longest is not None and window >= longest:
        window = None
    chunk = getattr(config, "attention_chunk_size", None)
    if CHUNKED in types and chunk is None:
        raise UserError(f"this model has layers of {CHUNKED!r} and no attention_chunk_size")
    windows = [window if kind == SLIDING else chunk if kind == CHUNKED else None for kind in types]
    modes = getattr(config, "kv_sharing_modes", None) or [None] * count
    states = getattr(config, "number_of_conv_states", 1)
    latent = getattr(config, "kv_lora_rank", None) is not None
    if latent and ({SLIDING, CHUNKED} & {*types} or any(modes)):
        raise UserError("this model has latents in layers with a sliding window, for which kvbench has no cache")
    kinds = []
    for at, (kind, reach, mode) in enumerate(zip(types, windows, modes, strict=True)):
        if kind not in (FULL, SLIDING, CHUNKED) or mode == "reuse":
            check_known(kind)
        if kind in LINEAR:
            kinds.append(LayerKind("state", states=states))
        elif kind in WITHOUT:
            kinds.append(LayerKind("nothing"))
        elif mode == "reuse":
            kinds.append(LayerKind("shared", reach))
        else:
            later = zip(types[at + 1 :], modes[at + 1 :], strict=True)
            readers = sum(mode == "reuse" and other == kind for other, mode in later) if mode == "store" else 0
            kinds.append(LayerKind("own", reach, readers, latent=latent, chunked=kind == CHUNKED))
    return tuple(kinds)


def kinds_at(config: PreTrainedConfig, n: int) -> Kinds:
    """`kinds_of` for a prompt of n tokens; without windows if every layer that attends has one that the prompt does not
    fill: the next token sees all of it.

    Methods compress the layers without a window. If a model has only sliding windows (Mistral-7B-v0.1), they compress
    all layers of such a prompt.
    """
    kinds = kinds_of(config)
    window = window_of_all(kinds)
    if window is not None and n < window and not any(kind.chunked for kind in kinds):
        return tuple(replace(kind, window=None) for kind in kinds)
    return kinds


def window_of_all(kinds: Kinds) -> int | None:
    """The shortest window, in tokens, where every layer that attends has one; None where one has none or none does."""
    windows = [kind.window for kind in kinds if kind.attends]
    return None if None in windows else min((window for window in windows if window is not None), default=None)


def compressed_layers(kinds: Sequence[LayerKind]) -> list[int]:
    """The layers that methods compress, by ascending number: those that keep keys and values of all tokens."""
    return [index for index, kind in enumerate(kinds) if kind.compressed]


def reads_one_by_one(config: PreTrainedConfig) -> bool:
    """Whether the tokens after a prompt must be read in passes of one token."""
    return config.get_text_config(decoder=True).model_type in ONE_BY_ONE


def check_continues(config: PreTrainedConfig, what: str) -> None:
    """Raise UserError for a model that cannot read several tokens at once after others, as `what` needs."""
    if reads_one_by_one(config):
        raise UserError(
            f"{what}, but the states of a {config.get_text_config(decoder=True).model_type} model are lost between two "
            "passes over several tokens: its prompts have to be read in one"
        )
