"""Products of one input as one product: queries, keys and values, or gate and up.

A pass over one token shows which linear maps of a layer get the same input. Their weights are then placed one after
another in one tensor, of which the model's parameters become views: nothing is stored twice, and no value changes. Each
map computes the whole product and returns its part of it, which is right for any input. `OnlyOnce` removes the
repetitions of a product when a layer is compiled.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch._inductor.custom_graph_pass import CustomGraphPass
from torch.fx import Graph, Node
from torch.nn.functional import linear
from transformers import PreTrainedModel

from kvbench.prefill import Needs, prefill

# Each part starts at a multiple of this many bytes. No kernel of a product needs more, so the model's own products stay
# the same bit for bit.
ALIGNED = 64


class PartOfProduct(nn.Module):
    """Some outputs of a larger linear map: `size` of them, from `start` on."""

    def __init__(self, weight: nn.Parameter, bias: nn.Parameter | None, start: int, size: int):
        super().__init__()
        self.weight, self.bias, self.start, self.size = weight, bias, start, size

    def forward(self, input: Tensor) -> Tensor:
        """input [..., in_features]; [..., size]."""
        return linear(input, self.weight, self.bias).narrow(-1, self.start, self.size)


class OnlyOnce(CustomGraphPass):
    """Removes repeated calls with the same arguments from a graph that Inductor compiles."""

    def __call__(self, graph: Graph) -> None:
        first: dict[tuple[object, ...], Node] = {}
        for node in list(graph.nodes):
            if repeatable(node):
                original = first.setdefault((node.target, node.args, tuple(node.kwargs.items())), node)
                if original is not node:
                    node.replace_all_uses_with(original)
                    graph.erase_node(node)

    def uuid(self) -> str:
        return "kvbench.OnlyOnce.1"  # part of the key under which Inductor keeps its code


def repeatable(node: Node) -> bool:
    """Whether `node` is an operator that gives the same for the same tensors, and writes into none."""
    target = node.target
    return (
        isinstance(target, torch._ops.OpOverload)
        and bool(node.all_input_nodes)  # else it makes a tensor that other operators may write into
        and not target._schema.is_mutable
        and torch.Tag.nondeterministic_seeded not in target.tags
    )


def merge_products(model: PreTrainedModel) -> None:
    """Replace linear maps of `model`'s layers that get the same input by parts of one product.

    Their parameters, which other objects may hold too, become views of the merged parameters. Maps that do more than
    multiply by a plain weight, and weights that merging would store twice, stay as they are.
    """
    names = {module: name for name, module in model.named_modules()}
    for group in groups(model):
        weights, biases = [module.weight for module in group], [module.bias for module in group]
        tensors = [weights] if biases[0] is None else [weights, biases]
        if not all(joinable(parts) for parts in tensors):
            continue
        weight, *bias = (nn.Parameter(joined(parts), requires_grad=False) for parts in tensors)
        start = 0
        for module in group:
            part = PartOfProduct(weight, bias[0] if bias else None, start, module.out_features)
            model.set_submodule(names[module], part)
            start += module.out_features
        if weight.is_cuda:  # else the allocator keeps the parts' memory, which is too small for the next product
            torch.cuda.empty_cache()


def groups(model: PreTrainedModel) -> Iterator[list[nn.Linear]]:
    """Plain linear maps of a layer that are called with the same tensors, in the order of calls."""
    calls: list[tuple[nn.Linear, Tensor]] = []

    def note(module: nn.Module, args: tuple[Any, ...]) -> None:
        if isinstance(module, nn.Linear) and args:
            calls.append((module, args[0]))

    layers = [[module for module in layer.modules() if is_plain(module)] for layer in model.get_decoder().layers]
    hooks = [module.register_forward_pre_hook(note) for layer in layers for module in layer]
    try:
        prefill(model, torch.zeros(1, dtype=torch.long), Needs())
    finally:
        for hook in hooks:
            hook.remove()
    inputs: dict[nn.Linear, tuple[int, ...]] = {}  # of all calls: a first pass may call layers more than once
    for module, tensor in calls:
        inputs[module] = (*inputs.get(module, ()), id(tensor))
    for layer in layers:
        alike: dict[tuple[object, ...], list[nn.Linear]] = {}
        for module, tensors in inputs.items():
            if module in layer:
                weight, biased = module.weight, module.bias is not None
                alike.setdefault((tensors, biased, weight.dtype, weight.device), []).append(module)
        yield from (group for group in alike.values() if len(group) > 1)


def is_plain(module: nn.Module) -> bool:
    """Whether `module` multiplies by a plain weight and does nothing else: no subclass (adapters, quantised weights),
    no special class of weights, no hook, no replaced forward pass."""
    return (
        type(module) is nn.Linear
        and all(type(tensor) is nn.Parameter and tensor.is_contiguous() for tensor in module.parameters())
        and not (module._forward_hooks or module._forward_pre_hooks or "forward" in vars(module))
    )


def joinable(parts: Sequence[nn.Parameter]) -> bool:
    """Whether `parts` lie one after another, or each has its own memory, which joining them frees."""
    owned = {part.untyped_storage().data_ptr() for part in parts}
    alone = len(owned) == len(parts) and all(part.untyped_storage().nbytes() == part.nbytes for part in parts)
    return in_a_row(parts) or (alone and not any(part.nbytes % ALIGNED for part in parts[:-1]))


def in_a_row(parts: Sequence[nn.Parameter]) -> bool:
    """Whether each of `parts` starts at the end of its predecessor."""
    ends = [part.storage_offset() + part.numel() for part in parts]
    starts = [part.storage_offset() for part in parts]
    return starts[1:] == ends[:-1] and len({part.untyped_storage().data_ptr() for part in parts}) == 1


def joined(parts: Sequence[nn.Parameter]) -> Tensor:
    """`parts` [rows, ...] as one tensor, [all rows, ...], of which they are views afterwards."""
    first, rows = parts[0].detach(), [len(part) for part in parts]
    with torch.inference_mode(first.is_inference()), torch.no_grad():
        if in_a_row(parts):
            return first.as_strided((sum(rows), *first.shape[1:]), first.stride())
        tensor = torch.cat([part.detach() for part in parts])
        for part, view in zip(parts, tensor.split(rows), strict=True):
            part.data = view
    return tensor
