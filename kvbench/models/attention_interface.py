"""The attention function and the mask function that kvbench registers with transformers.

A model loaded with `attn_implementation="kvbench"` calls `registered_attention` in every layer. The cache layer
returned *itself* from `update`, so it arrives here as `key` and computes attention over its own storage. No model file
is patched.
"""

from collections.abc import Callable
from typing import Any, Protocol

from torch import Tensor
from torch.nn import Module
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from kvbench.errors import UserError
from kvbench.models.latents import attend_expanded, take_handed_over
from kvbench.models.rope_growth import longrope_length
from kvbench.models.token_masks import is_causal
from kvbench.ops.no_gradients import refusing_gradients
from kvbench.ops.softmax import Scaling, Softmax

ATTENTION = "kvbench"
REGISTERED: dict[str, Callable[..., tuple[Tensor, None]]] = {}  # kvbench's attention functions by their names


class Attends(Protocol):
    """The cache layer that returned itself from `update`."""

    @property
    def windowed(self) -> bool: ...

    def get_seq_length(self) -> int: ...

    def read_by(self, module: Module) -> None: ...

    def attend(self, query: Tensor, scaling: Scaling) -> Tensor: ...

    def reread(self, query: Tensor, scaling: Scaling) -> Tensor: ...


def registered_attention(
    module: Module,
    query: Tensor,
    key: Attends | Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """The attention of `query` [1, num_attention_heads, q, head_dim] over the cache layer `key`.

    Returns ([1, q, num_attention_heads, head_dim], None) as transformers expects. Latents come expanded, as tensors.
    Raises UserError if `key` is a tensor of keys, from a pass without such a layer, for a mask that hides tokens before
    a query, for attention weights as output, and if the model's attention is more than softmax(QKᵀ·scaling)V, over all
    tokens or a window, with a soft cap or sinks.
    """
    if kwargs.get("output_attentions", getattr(getattr(module, "config", None), "output_attentions", False)):
        raise UserError(
            "output_attentions=True: attention over a compressed cache has no weights of all tokens; leave it out, or "
            "read them outside of kvbench's attention"
        )
    latents = None
    if isinstance(key, Tensor) and (latents := take_handed_over()) is None:
        raise UserError(_why_without_cache(module, key.shape[2]))
    if kwargs.get("position_bias") is not None:
        raise UserError("this model's attention uses 'position_bias', which kvbench does not implement")
    factor: float = module.head_dim**-0.5 if scaling is None else scaling
    softcap, sinks = kwargs.get("softcap"), kwargs.get("s_aux")
    how: Scaling = factor
    if softcap is not None or sinks is not None:
        how = Softmax(factor, softcap, None if sinks is None else sinks.detach())
    if latents is not None:
        return attend_expanded(module, query, *latents, key, value, how).transpose(1, 2).contiguous(), None
    key.read_by(module)
    window = kwargs.get("sliding_window")
    if attention_mask is not None and not is_causal(attention_mask, key.get_seq_length(), window):
        raise UserError(
            f"an attention_mask of {attention_mask.dim()} dimensions hides tokens: a compressed cache attends to all "
            "tokens that it holds before a query; leave the mask out"
        )
    if window is not None and not key.windowed and key.get_seq_length() > window:
        raise UserError(
            f"{key.get_seq_length()} tokens exceed this model's sliding attention window of {window}, which every "
            "layer has: only method=full goes beyond it; use a shorter context or a model with layers of full attention"
        )
    # a layer may read the keys of an earlier one (Gemma-3n, Gemma-4)
    attend = key.reread if getattr(module, "is_kv_shared_layer", False) else key.attend
    out = refusing_gradients(attend(query, how), query)
    return out.transpose(1, 2).contiguous(), None


def _why_without_cache(module: Module, n: int) -> str:
    """What to tell of a pass over n tokens in which a module attends without a compressed cache."""
    if getattr(module, "is_causal", True) is False:
        return (
            f"{type(module).__name__} attends to later tokens, as encoders of images, sound or texts do: a compressed "
            "cache holds what a decoder reads, so give the model text alone"
        )
    config = getattr(module, "config", None)
    length = None if config is None else longrope_length(config)
    if length is not None and n > length:
        return (
            f"{n} tokens: beyond {length} this model uses other RoPE frequencies (rope_type=longrope), and generate "
            "reads the whole text again without its compressed cache: end earlier, or use a longer prompt"
        )
    if module.training:
        checkpointing = "; with gradient checkpointing, a model in training mode leaves its cache out: model.eval()"
    else:
        checkpointing = ""
    return (
        f"attn_implementation={ATTENTION!r} attends to a compressed prompt, and this pass has no cache of one: run it "
        "in `with kvbench.compress(…)`, with past_key_values=CompressedCache(…), or after "
        f"model.set_attn_implementation('sdpa'){checkpointing}"
    )


def no_mask(*args: object, attention_mask: Tensor | None = None, **kwargs: object) -> None:
    """No mask: `attend` applies causality itself. Raises UserError for a mask with zeros, of a padded sequence.

    Only masks of prompts are read, which waits for the GPU once; masks of single tokens repeat them.
    """
    if attention_mask is None or attention_mask.dim() != 2 or kwargs.get("q_length") == 1:
        return
    if not attention_mask.bool().all():
        raise UserError(
            "attention_mask has zeros: a compressed cache holds one sequence without padding; pass the prompt without "
            "its padding tokens"
        )


def register(name: str, attention: Callable[..., tuple[Tensor, None]]) -> None:
    """Register an attention function that takes cache layers with transformers, and a mask function for it."""
    REGISTERED[name] = attention
    AttentionInterface.register(name, attention)
    AttentionMaskInterface.register(name, no_mask)


def restore_registered() -> None:
    """Register kvbench's attention functions again, which take cache layers: importing kvpress wraps every function of
    transformers in one that reads tensors."""
    ALL_ATTENTION_FUNCTIONS.update(REGISTERED)


register(ATTENTION, registered_attention)
