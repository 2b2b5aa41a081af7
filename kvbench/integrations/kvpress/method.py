"""Any press of an installed kvpress as a method: kvpress compresses, kvbench stores, decodes and counts."""

import json
from typing import Any, Literal

from kvbench.cache.base import LayerCache
from kvbench.cache.dense import DenseLayer
from kvbench.cache.ragged import RaggedLayer
from kvbench.cache.reserve_ratio import Kept
from kvbench.configuration.conf import choices
from kvbench.errors import UserError
from kvbench.integrations.kvpress.prefill import PressedLayer, PressedPrefill
from kvbench.integrations.kvpress.presses import build_press, refuse_decoding, takes_ratio, title
from kvbench.methods.base.method import Method
from kvbench.prefill import LayerState, PrefillState
from kvbench.utils.checked import checked

# Against float noise: kvpress keeps int(n · (1 - ratio)) tokens, one too few if the product is just below an integer.
NOISE = 1e-9


@checked
class KVPress(Method):
    """A press of kvpress (NVIDIA), run during prefill as kvpress runs it.

    press        its class.
    press_args   its arguments but for `compression_ratio`, which is 1 - ratio. A press among them is its name, or
                 {NAME: {its arguments}}.
    attention    transformers' attention during that prefill: sdpa, or eager for presses that read its weights.

    A press without a compression ratio runs once. Tokens that a press drops are gone. Tokens that it keeps in its cache
    and hides with a mask, head by head, are dropped here, which makes no difference to attention. Channels that it
    zeroes (ThinKPress) are stored and counted in full.
    """

    press: str | None
    press_args: dict[str, Any] | None = None
    attention: Literal["sdpa", "eager"] = "sdpa"

    takes_fractions = True
    own_positions = True  # of presses that turn keys; the others go on after the prompt
    layerwise = False  # some presses act when the whole pass is over

    def __post_init__(self) -> None:
        if self.press is None:
            raise UserError("press=NAME chooses one of kvpress's presses, for example press=ExpectedAttentionPress")
        self.press_args = self.press_args or {}
        self.chosen, self.arguments = self.press, self.press_args
        press = build_press(self.chosen, self.arguments)
        refuse_decoding(press)
        self.takes_budget = takes_ratio(press)
        if self.takes_budget and "compression_ratio" in self.arguments:
            raise UserError("ratio= sets press_args.compression_ratio: compression_ratio = 1 - ratio")

    def title(self, name: str) -> str:
        """Tables name the press, unless its configuration has a name of its own.

        Raises UserError for another preset's name, under whose title tables would show the press.
        """
        if name == "kvpress":
            return title(self.chosen, self.arguments)
        if name in choices("method"):
            raise UserError(
                f"method.{name} would be a press under the name of kvbench's {name!r}: give it a name of its own, as "
                f"in +method@method.my_press=kvpress method.my_press.press={self.chosen}"
            )
        return name

    def plan(self, n: int, num_layers: int, budget: float) -> PressedPrefill:
        ratio = max(1 - budget / n - NOISE, 0.0) if self.takes_budget else None
        return PressedPrefill(self.chosen, json.dumps(self.arguments, sort_keys=True), self.attention, ratio)

    def compress(self, state: PrefillState, budget: float) -> list[LayerCache]:
        return [self.compress_layer(layer, i, len(state.layers), budget) for i, layer in enumerate(state.layers)]

    def compress_layer(self, layer: LayerState, index: int, num_layers: int, budget: float) -> LayerCache:
        assert isinstance(layer, PressedLayer), "`plan` asks for a pressed prefill"
        heads = layer.num_key_value_heads
        per_head = None if layer.masked is None else tuple((~layer.masked).sum(dim=1).tolist())
        held = heads * layer.n if per_head is None else sum(per_head)
        kept = Kept(int(min(budget, layer.seen)), 2 * held, 2 * heads * layer.seen, per_head=per_head)
        if layer.masked is None:
            cache = DenseLayer(layer.keys, layer.values, layer.next_position, kept)
        else:
            cache = RaggedLayer(layer.keys, layer.values, ~layer.masked, layer.next_position, kept, per_head)
        cache.batches = layer.next_position == layer.prompt  # a batch's sequences share one position
        return cache
