"""Modules of a model that torch.compile has compiled: torch traces the model's code, but not kvbench's caches."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

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
        if (code := vars(module).get("_compiled_call_impl")) is not None:
            found.append(Compiled(module, "_compiled_call_impl", code, None))
        forward = vars(module).get("forward")
        if (plain := getattr(forward, "_torchdynamo_orig_callable", None)) is not None:
            found.append(Compiled(module, "forward", forward, plain))
    return found


@contextmanager
def uncompiled(model: PreTrainedModel) -> Iterator[None]:
    """Within the block these modules run as they are written, and `generate` compiles none for a static cache, which
    it does on a GPU; after it they have their compiled code again."""
    before, config = compiled_in_place(model), getattr(model, "generation_config", None)
    disabled = getattr(config, "disable_compile", None)
    for module, attribute, _, plain in before:
        setattr(module, attribute, plain)
    if config is not None:  # of a model that generates
        config.disable_compile = True
    try:
        yield
    finally:
        if config is not None:
            config.disable_compile = disabled
        for module, attribute, code, _ in before:
            setattr(module, attribute, code)
