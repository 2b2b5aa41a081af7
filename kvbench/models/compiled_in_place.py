"""Modules that `model.compile()` has compiled in place: torch traces the model's code, but not kvbench's caches."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


def compiled_in_place(model: nn.Module) -> list[nn.Module]:
    """The modules of a model that run compiled code when they are called, the model itself among them."""
    return [module for module in model.modules() if module._compiled_call_impl is not None]


@contextmanager
def uncompiled(model: nn.Module) -> Iterator[None]:
    """Within the block these modules run as they are written; after it they have their compiled code again."""
    before = [(module, module._compiled_call_impl) for module in compiled_in_place(model)]
    for module, _ in before:
        module._compiled_call_impl = None
    try:
        yield
    finally:
        for module, code in before:
            module._compiled_call_impl = code
