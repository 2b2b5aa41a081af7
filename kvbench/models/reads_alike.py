"""Whether a model reads the same with kvbench's attention and caches as with its own, from a few tokens."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import torch
from torch import Tensor, nn
from transformers import Cache, PreTrainedModel

from kvbench.errors import UserError
from kvbench.models.attending_layer import AttendingLayer
from kvbench.models.attention_interface import ATTENTION, register, registered_attention
from kvbench.models.cache_argument import as_argument
from kvbench.models.cache_layers import DummyLayer, LinearAttentionLayer
from kvbench.models.latents import as_one_head
from kvbench.models.layer_kinds import LayerKind
from kvbench.models.positions import positions_after
from kvbench.ops.attention import dense_attention
from kvbench.ops.rope import text_decoder
from kvbench.ops.softmax import Scaling
from kvbench.utils.text import first_line

PROBE = "kvbench_probe"  # the attention function that notes which arguments each layer passes
PROMPT, TOKENS = 5, 6  # tokens that are read at once, and with the one after them
# Of hidden states, the largest share that may differ: rounding to 16 bits may choose another expert.
CLOSE, CLOSE_IN_16_BITS = 1e-3, 0.25
KVBENCH = "kvbench's attention and caches"
INSTEAD = "engine=openai compares settings of a server that runs it"


class PlainLayer(AttendingLayer):
    """Keeps all keys and values, or latents, attends to them, and notes what the model's code passes to attention: its
    sliding window, and whether a token attends to earlier ones alone."""

    keys = values = passed_window = None
    causal = absorbs = True

    @property
    def windowed(self) -> bool:
        """No window is shorter than what is read here."""
        return True

    def append(self, keys: Tensor, values: Tensor) -> None:
        self.keys = keys if self.keys is None else torch.cat([self.keys, keys], dim=2)
        self.values = values if self.values is None else torch.cat([self.values, values], dim=2)

    def attend(self, query: Tensor, scaling: Scaling) -> Tensor:
        keys, values = as_one_head(self.keys, self.values) if self.latent else (self.keys, self.values)
        return dense_attention(query, keys, values, scaling)


def _noting(module: nn.Module, query: Tensor, key: Any, *args: Any, **kwargs: Any) -> tuple[Tensor, None]:
    """`registered_attention`, with a note in the cache layer that it gets as keys."""
    if isinstance(key, PlainLayer):
        key.passed_window = kwargs.get("sliding_window")
        key.causal = getattr(module, "is_causal", True) is not False
    return registered_attention(module, query, key, *args, **kwargs)


register(PROBE, _noting)


class _Enough(Exception):
    """Ends a pass behind the last layer to be compared."""


def check_reads_alike(model: PreTrainedModel, kinds: Sequence[LayerKind]) -> float:
    """Raise UserError for a model that does not read with kvbench's attention what it reads with its own; return how
    far the hidden states of both are apart, as a share of their norm.

    Compares hidden states behind the lowest layers, one of each kind at least: a prompt and a token after it through
    kvbench's attention, with a cache, and all of them at once through the model's own.
    """
    name = type(model).__name__
    vocab_size = model.get_input_embeddings().weight.shape[0]
    ids = torch.arange(1, TOKENS + 1, device=model.device)[None] * (vocab_size // (TOKENS + 2))
    layers = cache_layers(kinds, PlainLayer)
    attention, training = model.config._attn_implementation, model.training
    model.eval()
    try:
        with behind(*deepest(model, kinds)) as hidden:
            with refusing(name, KVBENCH, TOKENS):
                model.set_attn_implementation(PROBE)
                for seen, some in ((0, ids[:, :PROMPT]), (PROMPT, ids[:, PROMPT:])):
                    read(model, some, positions_after(seen, some), layers)
            with refusing(name, "its own attention", TOKENS):
                model.set_attn_implementation("eager")
                with suppress(_Enough):
                    model(input_ids=ids, position_ids=positions_after(0, ids), use_cache=False)
    finally:
        model.set_attn_implementation(attention)
        model.train(training)
    if next(layer.seen == 0 for layer in layers if isinstance(layer, PlainLayer)):
        raise UserError(f"{name} keeps no keys and values in the caches that it is given: {INSTEAD}")
    for at, layer in enumerate(layers):
        if isinstance(layer, PlainLayer) and layer.seen:
            check_passed(name, at, layer, None if kinds[at].chunked else kinds[at].window)
    if len(hidden) != 3:  # a pass each over the prompt, the token after it, and all of them
        raise UserError(f"{name} leaves out layers where there is nothing but text (cross-attention): {INSTEAD}")
    share = difference(torch.cat(hidden[:-1], dim=-2), hidden[-1])
    if not share <= (CLOSE_IN_16_BITS if model.dtype.itemsize < 4 else CLOSE):
        raise UserError(
            f"{name} reads something else with kvbench's attention than with its own: hidden states of {TOKENS} tokens "
            f"differ by {share:.1%}; {INSTEAD}"
        )
    return share


def check_passed(name: str, at: int, layer: PlainLayer, window: int | None) -> None:
    """Raise UserError where the code of layer `at` asks for attention other than the configuration's."""
    if not layer.causal:
        raise UserError(f"{name} attends to later tokens (layer {at}), whose keys no cache has yet: {INSTEAD}")
    if window is not None and layer.passed_window != window:
        raise UserError(
            f"{name} has a window of {window} tokens in layer {at} by its configuration, which its code does not pass "
            f"to attention: {INSTEAD}"
        )


@contextmanager
def takes_attention(name: str) -> Iterator[None]:
    """While a model is made: its code may choose among attention functions of its own (Falcon, GPT-J)."""
    try:
        yield
    except KeyError as error:
        if error.args != (ATTENTION,):
            raise
        raise UserError(
            f"{name} takes no attention function: its code in transformers chooses one of its own, which no cache of "
            f"kvbench's can replace: {INSTEAD}"
        ) from error


def cache_layers(kinds: Sequence[LayerKind], make: Callable[[], AttendingLayer]) -> list[Any]:
    """A cache layer for each of a model's, in transformers' classes where it keeps no keys; `make` makes the others."""
    return [
        made(make, kind)
        if kind.keeps == "own"
        else LinearAttentionLayer(kind.states)
        if kind.keeps == "state"
        else DummyLayer()
        for kind in kinds
    ]


def made(make: Callable[[], AttendingLayer], kind: LayerKind) -> AttendingLayer:
    layer = make()
    layer.latent = kind.latent
    return layer


def difference(x: Tensor, reference: Tensor) -> float:
    """How far a tensor is from another of its shape, as a share of the other's norm."""
    x, reference = x.float(), reference.float()
    return float((x - reference).norm() / reference.norm().clamp_min(torch.finfo(torch.float32).tiny))


def deepest(model: PreTrainedModel, kinds: Sequence[LayerKind]) -> tuple[nn.Module, bool]:
    """The module behind which a pass can end, since no layer above it is of another kind than those below, and whether
    it is a layer; the model itself where its layers are not one list."""
    layers = layers_of(model, kinds)
    if layers is None:
        return model, False
    shapes = [(kind, *(type(part) for part in layer.modules())) for kind, layer in zip(kinds, layers, strict=True)]
    return layers[max(shapes.index(shape) for shape in shapes)], True


def layers_of(model: PreTrainedModel, kinds: Sequence[LayerKind]) -> nn.ModuleList | None:
    """The model's layers; None where they are not one list."""
    lists = (module for module in text_decoder(model).modules() if isinstance(module, nn.ModuleList))
    return next((module for module in lists if len(module) == len(kinds)), None)


@contextmanager
def behind(module: nn.Module, ends: bool) -> Iterator[list[Tensor]]:
    """A list to which each pass appends what `module` computes, hidden states or logits [1, q, …], and then ends."""
    outputs: list[Tensor] = []

    def note(_: nn.Module, __: object, output: Any) -> None:
        outputs.append(output if isinstance(output, Tensor) else output[0])
        if ends:
            raise _Enough

    hook = module.register_forward_hook(note)
    try:
        yield outputs
    finally:
        hook.remove()


@contextmanager
def refusing(name: str, what: str, tokens: int) -> Iterator[None]:
    """A model does with its caches what it likes: whatever it raises while it reads `tokens`, as a UserError."""
    try:
        yield
    except (UserError, MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        raise UserError(
            f"{name} does not work with {what}: reading {tokens} token{'s' * (tokens > 1)} ends with "
            f"{type(error).__name__}: {first_line(error)} ({INSTEAD})"
        ) from error


def read(model: PreTrainedModel, ids: Tensor, positions: Tensor, layers: list[Any], **options: Any) -> None:
    """A pass over ids [sequences, q] at positions [sequences or 1, q] with these layers, which `behind` may end."""
    cache = as_argument(model, Cache(layers=layers))
    with suppress(_Enough):
        model(input_ids=ids, **cache, position_ids=positions, use_cache=True, **options)
