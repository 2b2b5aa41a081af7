"""Decoding with compiled layers: operations between matrix products and kvbench's operators are fused.

`torch.compile` gets transformers' layers as they are. A second model object has the same weights and the compiled
layers; prefill and everything else use the first. All layers share one compilation: nothing that a layer reads depends
on its number, and it takes its cache from the layer before it.
"""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any
from weakref import WeakKeyDictionary

from torch import Tensor, nn
from transformers import Cache, PreTrainedModel

from kvbench.cache.batch import BatchCache
from kvbench.cache.batch_layer import BatchLayer
from kvbench.errors import UserError
from kvbench.evaluation.merged_products import OnlyOnce, merge_products
from kvbench.ops.softmax import Scaling

# Compilations of a layer: for one row and several, for equal and other lengths, for each mixture of caches. Torch's own
# limit is 8.
MOST = 64
# In fused operations values of 16 bits stay in float32. Rounded where eager operations round them, they differ less.
OPTIONS: dict[str, str | int | bool | Callable[..., Any]] = {
    "emulate_precision_casts": True,
    "joint_custom_pre_pass": OnlyOnce(),
}
_fused: WeakKeyDictionary[PreTrainedModel, PreTrainedModel] = WeakKeyDictionary()


@contextmanager
def compiling() -> Iterator[None]:
    """Raise UserError if torch cannot compile a layer within the block."""
    from torch._dynamo import config
    from torch._dynamo.exc import TorchDynamoException

    try:
        # a model's floats, such as a norm's epsilon, are the same in all layers
        with config.patch(specialize_float=True, recompile_limit=MOST):
            yield
    except TorchDynamoException as error:
        lines = [line for line in str(error).splitlines() if line.strip()]
        raise UserError(f"decode.engine=fused: a layer cannot be compiled ({lines[0]}): graph or eager") from error


def fused(model: PreTrainedModel) -> PreTrainedModel:
    """`model` with compiled layers: another object with the same weights, only for decoding over a `DeviceCache`."""
    if model not in _fused:
        _fused[model] = with_compiled_layers(model, options=OPTIONS)
    return _fused[model]


def with_compiled_layers(model: PreTrainedModel, **options: Any) -> PreTrainedModel:
    """A new object with the model's weights, whose layers are compiled with these options of `torch.compile`.

    Products of the same input become one product, for which the model's own weights move (see `merge_products`). A
    layer that is not a single graph raises an error at its first step.
    """
    weights = [*model.parameters(), *model.buffers()]
    compiled: PreTrainedModel = copy.deepcopy(model, {id(tensor): tensor for tensor in weights})
    merge_products(compiled)
    for layer in compiled.get_decoder().layers:
        layer.compile(fullgraph=True, dynamic=True, **options)
    return compiled


class DeviceLayer:
    """The work of a step on the device in one layer of a batch. `BatchLayer.advance` counts it."""

    windowed = True  # or shorter than the window, as checked by the step that Python launched before
    next: "DeviceLayer"

    def __init__(self, layer: BatchLayer):
        self.layer = layer

    def get_seq_length(self) -> int:
        return self.layer.seen

    def read_by(self, module: nn.Module) -> None:
        """Any module may: the batch is of the one model that decodes it."""

    def attend(self, query: Tensor, scaling: Scaling) -> Tensor:
        return self.layer.attended(query, scaling)


class DeviceCache(Cache):
    """The caches of a batch for one step, in which the host counts nothing. All must have tokens `ahead`."""

    def __init__(self, cache: BatchCache):
        super().__init__(layers=cache.layers)
        layers = [DeviceLayer(layer) for layer in cache.layers]
        for layer, following in pairwise([*layers, layers[0]]):
            layer.next = following
        self.layer = layers[0]  # the next to be updated; an index would be compiled into each layer

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[DeviceLayer, DeviceLayer]:
        layer = self.layer
        self.layer = layer.next
        layer.layer.write(key_states, value_states)
        return layer, layer

    def count(self, tokens: int) -> None:
        return None
