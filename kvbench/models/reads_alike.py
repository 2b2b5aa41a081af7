"""Whether a model reads a few tokens the same with kvbench's attention and caches as with its own."""

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
from kvbench.models.implementations import restored_attention
from kvbench.models.latents import as_one_head
from kvbench.models.layer_kinds import LayerKind
from kvbench.models.positions import positions_after
from kvbench.ops.attention import dense_attention
from kvbench.ops.rope import text_decoder
from kvbench.ops.softmax import Scaling
from kvbench.utils.text import first_line

PROBE = "kvbench_probe"  # the attention function that notes the arguments of each layer
PROMPT, TOKENS = 5, 6  # tokens that are read at once, and with the one after them
# The largest difference, as a share, of hidden states: rounding to 16 bits may choose another expert.
CLOSE, CLOSE_IN_16_BITS = 1e-3, 0.25
KVBENCH = "kvbench's attention and caches"
INSTEAD = "engine=openai compares settings of a server that runs it"


class PlainLayer(AttendingLayer):
    """Keeps all keys and values, or latents, and attends to them.

    It records the arguments of attention that the model's code passes: the sliding window, and whether a token attends
    only to earlier tokens.
    """

    keys = values = passed_window = None
    causal = absorbs = True

    @property
    def windowed(self) -> bool:
        """True: no window is shorter than the few tokens that are read."""
        return True

    def append(self, keys: Tensor, values: Tensor) -> None:
        self.keys = keys if self.keys is None else torch.cat([self.keys, keys], dim=2)
        self.values = values if self.values is None else torch.cat([self.values, values], dim=2)

    def attend(self, query: Tensor, scaling: Scaling) -> Tensor:
        keys, values = as_one_head(self.keys, self.values) if self.latent else (self.keys, self.values)
        return dense_attention(query, keys, values, scaling)


def _noting(module: nn.Module, query: Tensor, key: Any, *args: Any, **kwargs: Any) -> tuple[Tensor, None]:
    """`registered_attention`, which also writes a note into the cache layer that it gets as keys."""
    if isinstance(key, PlainLayer):
        key.passed_window = kwargs.get("sliding_window")
        key.causal = getattr(module, "is_causal", True) is not False
    return registered_attention(module, query, key, *args, **kwargs)


register(PROBE, _noting)


class _Enough(Exception):
    """Ends a pass after the last layer to be compared."""


def check_reads_alike(model: PreTrainedModel, kinds: Sequence[LayerKind]) -> float:
    """Raise UserError for a model that reads something else with kvbench's attention than with its own. Returns the
    difference of the hidden states as a share of their norm.

    Compares hidden states after the lowest layers, with at least one layer of each kind: a prompt and a token after it
    through kvbench's attention, with a cache, and all tokens at once through the model's own. For a model that is
    `evaluating`.
    """
    name = type(model).__name__
    if model.config.is_encoder_decoder:
        raise UserError(
            f"{name} reads its prompt with an encoder, which has no cache that could be compressed: {INSTEAD}"
        )
    vocab_size = model.get_input_embeddings().weight.shape[0]
    ids = torch.arange(1, TOKENS + 1, device=model.device)[None] * (vocab_size // (TOKENS + 2))
    layers = cache_layers(kinds, PlainLayer)
    with outputs_of(*deepest(model, kinds)) as hidden, restored_attention(model):
        with refusing(name, KVBENCH, TOKENS):
            model.set_attn_implementation(PROBE)
            for seen, part in ((0, ids[:, :PROMPT]), (PROMPT, ids[:, PROMPT:])):
                read(model, part, positions_after(seen, part), layers)
        with refusing(name, "its own attention", TOKENS):
            model.set_attn_implementation("eager")
            with suppress(_Enough):
                model(input_ids=ids, position_ids=positions_after(0, ids), use_cache=False)
    if next(layer.seen == 0 for layer in layers if isinstance(layer, PlainLayer)):
        raise UserError(f"{name} does not store keys and values in its caches: {INSTEAD}")
    states = [layer for layer in layers if isinstance(layer, LinearAttentionLayer)]
    if states and not any(holds_states(layer) for layer in states):
        raise UserError(
            f"{name} keeps the states of a text in its own modules and not in its caches, so that two settings would "
            f"share them: {INSTEAD}"
        )
    for at, layer in enumerate(layers):
        if isinstance(layer, PlainLayer) and layer.seen:
            check_passed(name, at, layer, None if kinds[at].chunked else kinds[at].window)
    if len(hidden) != 3:  # a pass each over the prompt, the token after it, and all of them
        raise UserError(f"{name} skips layers if there is only text (cross-attention): {INSTEAD}")
    if not torch.isfinite(hidden[-1]).all():
        raise UserError(
            f"{name} computes hidden states that are not finite, with its own attention too: its weights are damaged, "
            f"or it overflows in {str(model.dtype).removeprefix('torch.')}"
        )
    share = difference(torch.cat(hidden[:-1], dim=-2), hidden[-1])
    if not share <= (CLOSE_IN_16_BITS if model.dtype.itemsize < 4 else CLOSE):
        raise UserError(
            f"{name} reads something else with kvbench's attention than with its own: hidden states of {TOKENS} tokens "
            f"differ by {share:.1%}; {INSTEAD}"
        )
    return share


def holds_states(layer: LinearAttentionLayer) -> bool:
    """Whether the model has put convolution or recurrent states into a cache layer."""
    return any(state is not None for state in (*layer.conv_states.values(), *layer.recurrent_states.values()))


def check_passed(name: str, at: int, layer: PlainLayer, window: int | None) -> None:
    """Raise UserError if the code of layer `at` requests another attention than the configuration states."""
    if not layer.causal:
        raise UserError(f"{name} attends to later tokens (layer {at}), whose keys no cache has yet: {INSTEAD}")
    if window is not None and layer.passed_window != window:
        raise UserError(
            f"{name} has a window of {window} tokens in layer {at} by its configuration, which its code does not pass "
            f"to attention: {INSTEAD}"
        )


@contextmanager
def takes_attention(name: str) -> Iterator[None]:
    """Raise UserError while a model is made whose code chooses among its own attention functions (Falcon, GPT-J)."""
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
    """A cache layer for each of a model's layers: `make` makes layers with keys, the others are transformers' own."""
    layers: list[Any] = []
    for kind in kinds:
        if kind.keeps == "own":
            layers.append(make())
            layers[-1].latent = kind.latent
        else:
            layers.append(LinearAttentionLayer(kind.states) if kind.keeps == "state" else DummyLayer())
    return layers


def difference(x: Tensor, reference: Tensor) -> float:
    """The norm of the difference of two tensors over the norm of the reference."""
    x, reference = x.float(), reference.float()
    return float((x - reference).norm() / reference.norm().clamp_min(torch.finfo(torch.float32).tiny))


def deepest(model: PreTrainedModel, kinds: Sequence[LayerKind]) -> tuple[nn.Module, bool]:
    """The module after which a pass can end, since all kinds of layers have come by then, and whether it is a layer. If
    the model's layers are not one list, it is the model itself."""
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
def evaluating(model: nn.Module) -> Iterator[None]:
    """Within the block no module of the model is in training mode: dropout would make two passes differ."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True


@contextmanager
def outputs_of(module: nn.Module, ends: bool) -> Iterator[list[Tensor]]:
    """A list to which each pass appends the output of `module`, hidden states or logits [1, q, …]. If `ends`, the
    pass then ends."""
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
    """Raise UserError for any error while a model reads `tokens`: its code may do anything with its caches."""
    try:
        yield
    except (UserError, MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        raise UserError(
            f"{name} does not work with {what}: reading {tokens} token{'s' * (tokens > 1)} ends with "
            f"{first_line(f'{type(error).__name__}: {error}')} ({INSTEAD})"
        ) from error


@contextmanager
def naming_hooks(model: nn.Module) -> Iterator[None]:
    """Within the block a refusal names the programs that have hooked the model, which may be its reason."""
    try:
        yield
    except UserError as error:
        if programs := hooked_by(model):
            raise UserError(
                f"{error}; it has forward hooks of {', '.join(programs)} (a press of kvpress?), which may be the reason"
            ) from error
        raise


def hooked_by(model: nn.Module) -> list[str]:
    """The packages whose forward hooks the modules of a model have, but for those that read it."""
    hooks = [
        hook
        for module in model.modules()
        for hook in (*module._forward_pre_hooks.values(), *module._forward_hooks.values())
    ]
    packages = {str(getattr(hook, "__module__", type(hook).__module__)).partition(".")[0] for hook in hooks}
    return sorted(packages - {"kvbench", "torch", "transformers"})


def read(model: PreTrainedModel, ids: Tensor, positions: Tensor, layers: list[Any], **options: Any) -> None:
    """A pass over ids [sequences, q] at positions [sequences or 1, q] with these layers, which `outputs_of` may end."""
    cache = as_argument(model, Cache(layers=layers))
    with suppress(_Enough):
        model(input_ids=ids, **cache, position_ids=positions, use_cache=True, **options)
