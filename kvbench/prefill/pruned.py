"""A prefill that drops tokens between layers, so that higher layers neither compute nor store them."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import Cache, PreTrainedModel

from kvbench.cache.held import Held
from kvbench.errors import UserError
from kvbench.models.cache_argument import as_argument
from kvbench.models.layer_kinds import LayerKind, kinds_at
from kvbench.models.probe import ropes_of
from kvbench.models.rope_growth import forget_lengths
from kvbench.ops.attention_mass import weighted_rows
from kvbench.ops.rope import Rope
from kvbench.ops.softmax import Scaling
from kvbench.prefill.full import CaptureLayer
from kvbench.prefill.plan import PrefillPlan
from kvbench.prefill.state import LayerState, Needs, PrefillState, Release

# Tokens on which the walk over the layers is compared with the model's own forward pass.
TRIAL = 8


@dataclass(frozen=True)
class PrunedPrefill(PrefillPlan):
    """PyramidInfer's pruning of one prompt: after each layer, its least attended context tokens are dropped.

    The last 1 + `recent` tokens stay, and their queries score the tokens before them, the context.
    """

    shares: tuple[float, ...]  # per layer, share of the context that goes on to the next layer; 1 drops nothing
    recent: int
    sinks: int  # first tokens, which stay
    min_context: int  # the context always keeps more tokens than this
    distance_weight: float  # weight of the last query; the first has 1, linear in between

    @property
    def tail(self) -> int:
        return 1 + self.recent

    def survivors(self, layer: int, context: int) -> int:
        """Number of `context` tokens that go on from `layer` to the next."""
        kept = int(context * self.shares[layer])
        return kept if kept > self.min_context else context

    def lengths(self, n: int) -> list[int]:
        """Number of tokens that enter each layer, which its cache holds; it does not depend on the attention."""
        context, lengths = n - self.tail, []
        for layer in range(len(self.shares)):
            lengths.append(self.tail + context)
            context = self.survivors(layer, context)
        return lengths

    def run(
        self, model: PreTrainedModel, input_ids: Tensor, needs: Needs, release: Release | None = None
    ) -> PrefillState:
        """Ignore `needs`: a pruned pass observes only the attention by which it prunes."""
        return pruned_prefill(model, input_ids, self, release)


class PrunedLayer(CaptureLayer):
    """Captures one layer of a pruned pass and scores its context by the recent queries' attention."""

    def __init__(self, rope: Rope | None, release: Release | None, plan: PrunedPrefill, index: int, positions: Tensor):
        """positions [len]: the original positions of the tokens that enter layer `index`, ascending."""
        super().__init__(Needs(), release, index, len(plan.shares))
        self.rope, self.plan, self.positions = rope, plan, positions
        self.prompt = int(positions[-1]) + 1
        self.seen = self.prompt - len(positions)  # `update` adds the survivors: the whole prompt was seen
        self.kept: Tensor | None = None  # [len] indices of the tokens that go on to the next layer; None: all

    def observe(self, query: Tensor, scaling: Scaling, lse: Tensor | None = None) -> LayerState:
        state = super().observe(query, scaling, lse)
        state.prompt, state.positions = self.prompt, self.positions.to(query.device)
        tail = self.plan.tail
        context = state.n - tail
        survivors = self.plan.survivors(self.index, context)
        if survivors < context:
            weights = torch.linspace(1.0, self.plan.distance_weight, tail, device=query.device)
            scores = weighted_rows(query[0, :, -tail:], state.keys, scaling, weights)[:context]
            scores[: self.plan.sinks] = float("inf")
            best = scores.sort(descending=True, stable=True).indices[:survivors].sort().values
            self.kept = torch.cat([best, torch.arange(context, state.n, device=best.device)])
        return state


@torch.inference_mode()
def pruned_prefill(
    model: PreTrainedModel, input_ids: Tensor, plan: PrunedPrefill, release: Release | None = None
) -> PrefillState:
    """Run `model` over input_ids [n], layer by layer, with only the tokens that `plan` keeps.

    Source: PyramidInfer's released code (Yang et al. 2024). The layer states hold the tokens that *entered* each
    layer, all of them in layer 0; survivors keep their original positions.
    Raises UserError for a model whose forward pass is more than its layers in sequence.
    """
    ids = input_ids[None].to(model.device)
    if any(kind != LayerKind() for kind in kinds_at(model.config, len(input_ids))):
        raise UserError(
            f"{type(model).__name__} has layers with a sliding window, a state of fixed size, latents or the keys of "
            "another layer, which would see other tokens if some are pruned between layers: pyramidinfer works with "
            "full attention in every layer"
        )
    _check_walk(model, ids[:, :TRIAL])
    forget_lengths(model)
    ropes = ropes_of(model)
    held = Held()
    layers: list[PrunedLayer] = []

    def capture(index: int, positions: Tensor) -> PrunedLayer:
        layer = PrunedLayer(ropes[index], release, plan, index, positions)
        layer.held = held
        layers.append(layer)
        return layer

    logits = _walk(model, ids, capture).to(model.device)
    return PrefillState([layer.state for layer in layers if layer.state is not None], logits, held.most)


def _walk(model: PreTrainedModel, ids: Tensor, capture: Callable[[int, Tensor], PrunedLayer]) -> Tensor:
    """Logits [vocab_size] of the last of ids [1, n], by the model's own modules in the order of its forward.

    `capture(index, positions)` makes the cache layer of a decoder layer; its `kept` has the tokens that go on to the
    next layer. Layers may lie on several devices: accelerate's hooks move a layer's inputs.
    """
    base = model.base_model
    caches: list[CaptureLayer] = []
    hidden = model.get_input_embeddings()(ids)  # [1, n, hidden_size]
    positions = torch.arange(ids.shape[1], device=hidden.device)
    for index, block in enumerate(base.layers):
        caches.append(capture(index, positions))
        hidden = block(
            hidden,
            attention_mask=None,
            position_ids=positions[None],
            position_embeddings=base.rotary_emb(hidden, positions[None]),
            **as_argument(block, Cache(layers=caches)),
            use_cache=True,
        )
        positions = positions.to(hidden.device)
        if (kept := caches[-1].kept) is not None:
            hidden, positions = hidden[:, kept], positions[kept]
    return model.get_output_embeddings()(base.norm(hidden)[:, -1:])[0, -1]


def _check_walk(model: PreTrainedModel, ids: Tensor) -> None:
    """Raise UserError for a model that computes anything between its layers, which the walk would leave out."""
    unpruned = PrunedPrefill((1.0,) * model.config.get_text_config().num_hidden_layers, 0, 0, 0, 1.0)
    try:
        walked = _walk(model, ids, lambda index, positions: PrunedLayer(None, None, unpruned, index, positions))
    except (AttributeError, TypeError) as error:
        raise UserError(f"{type(model).__name__} has no plain stack of layers to prune between: {error}") from error
    caches = [CaptureLayer(Needs()) for _ in unpruned.shares]
    logits = model(input_ids=ids, **as_argument(model, Cache(layers=caches)), use_cache=True).logits[0, -1]
    if not torch.allclose(
        walked.to(logits.device).float(), logits.float(), rtol=1e-2, atol=1e-2 * float(logits.float().std())
    ):
        raise UserError(
            f"{type(model).__name__} does more than its layers in turn, so pruning between them would change it: "
            "pyramidinfer works with models like Llama, Mistral and Qwen"
        )
