"""Modules of a model that torch.compile has compiled: torch traces the model's code, but not kvbench's caches."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import nn
from transformers import PreTrainedModel


class Compiled(NamedTuple):
    """A module, its attribute with compiled code, and what the attribute is without it."""

    module: nn.Module
    attribute: str
    code: Callable[..., Any]
    plain: Callable[..., Any] | None


def compiled_in_place(model: nn.Module) -> list[Compiled]:
    """The modules of a model that run compiled code when they are called, the model itself among them: by
    `module.compile()`, by `module.forward = torch.compile(module.forward)`, or since `torch.compile(module)` has
    replaced them in the module around them."""
    found = []
    for module in model.modules():
        code = vars(module).get("_compiled_call_impl")
        if code is not None and not hasattr(code, "_torchdynamo_disable"):  # which `uncompiled` has set
            found.append(Compiled(module, "_compiled_call_impl", code, None))
        forward = vars(module).get("forward")
        if (plain := getattr(forward, "_torchdynamo_orig_callable", None)) is not None:
            found.append(Compiled(module, "forward", forward, plain))
    return found


@contextmanager
def uncompiled(model: PreTrainedModel) -> Iterator[None]:
    """Within the block these modules run as they are written, and so does the model for code that was compiled around
    it: by `torch.compile(model)` under another name, or by `generate` for a static cache on a GPU. After it they have
    their compiled code again. Copies and saved files of the model know nothing of it."""
    before = compiled_in_place(model)
    for module, attribute, _, plain in before:
        setattr(module, attribute, plain)
    model._compiled_call_impl = torch.compiler.disable(model._call_impl)  # left out of a module's copies
    try:
        yield
    finally:
        model._compiled_call_impl = None
        for module, attribute, code, _ in before:
            setattr(module, attribute, code)
