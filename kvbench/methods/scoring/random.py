"""A random score, as a baseline."""

from typing import ClassVar, Literal

import numpy
import torch
from torch import Tensor

from kvbench.methods.scoring.base import Scoring
from kvbench.prefill import LayerState
from kvbench.utils.checked import NonNegative, checked


@checked
class Random(Scoring):
    """Uniform random numbers, drawn on the CPU from (seed, layer, length of the text): the same tokens on every device.

    A cache that is reduced again and again draws anew each time, because the text has grown.

    sinks    first tokens that are always kept.
    window   last tokens that are always kept. Protecting sinks and window is most of the benefit of weak scorings.
    scope    head: a separate draw for every KV head. layer: one draw for all heads of a layer.
    """

    seed: NonNegative = 0
    sinks: NonNegative = 0
    window: NonNegative = 0
    scope: Literal["head", "layer"] = "head"

    version: ClassVar[int] = 2  # 1 drew the same slots at every reduction, so that the first ones were never dropped

    per_query_head = False

    def votes(self, layer: LayerState) -> Tensor:
        generator = numpy.random.default_rng([self.seed, layer.index, layer.seen])
        heads = layer.num_key_value_heads
        drawn = generator.random((heads if self.scope == "head" else 1, layer.n), dtype=numpy.float32)
        return self.keep_sinks(torch.from_numpy(drawn).to(layer.keys.device).expand(heads, -1).clone())
