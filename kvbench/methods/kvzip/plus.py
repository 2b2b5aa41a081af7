"""KVzip+: KVzip's score, relative to a token's contribution to the residual stream."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from transformers import PreTrainedModel

from kvbench.methods.kvzip.scoring import KVzip
from kvbench.ops.norms import float32_norm
from kvbench.ops.rope import decoder_layers
from kvbench.prefill import Reconstruction
from kvbench.prefill.reconstruction import Factors, Weighing
from kvbench.prefill.value_output_norm import output_projections, value_output_norm
from kvbench.utils.checked import checked


class Relative:
    """Factors of one layer's attention weights: of queries by their hidden states, of keys by their values."""

    def __init__(self, weight: Tensor):
        self.weight = weight  # [hidden_size, num_attention_heads · head_dim]
        self.hidden: Tensor | None = None  # norms of the states that entered attention last, [q]

    def enter(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        hidden = args[0] if args else kwargs["hidden_states"]
        self.hidden = float32_norm(hidden[0])

    def factors(self, values: Tensor) -> Factors:
        assert self.hidden is not None, "the layer's attention was entered"
        return Factors(-self.hidden.log(), value_output_norm(values, self.weight, order=2).log())


@dataclass(frozen=True)
class RelativeReconstruction(Reconstruction):
    """A second pass whose attention is multiplied by ‖W_o v_j‖₂ / ‖h_i‖₂."""

    @contextmanager
    def weighing(self, model: PreTrainedModel, places: Sequence[int]) -> Iterator[Sequence[Weighing]]:
        relative = [Relative(weight) for weight in output_projections(model, places)]
        layers = decoder_layers(model)
        hooks = [
            layers[place].self_attn.register_forward_pre_hook(layer.enter, with_kwargs=True)
            for place, layer in zip(places, relative, strict=True)
        ]
        try:
            yield [layer.factors for layer in relative]
        finally:
            for hook in hooks:
                hook.remove()


@checked
class KVzipPlus(KVzip):
    """KVzip+ (Jégou & Jeblick 2026, KVzap, arXiv 2601.07891): the teacher that KVzap's models learn from.

    The score of token j is the largest a_ij · ‖W_o v_j‖₂ / ‖h_i‖₂ over the queries i of KVzip's second pass and the
    query heads of the group. a_ij is the attention weight, W_o the head's part of the output projection, and h_i the
    hidden state that enters the layer's attention, after its norm. Parameters are KVzip's. Source:
    `kvzip_plus_normalization` of kvpress's KVzipPress.
    """

    second_pass = RelativeReconstruction
