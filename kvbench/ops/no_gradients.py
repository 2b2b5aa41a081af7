"""Results whose gradients are not computed: asking for them is an error, not a part of the sum that is missing."""

from typing import Any, NoReturn

import torch
from torch import Tensor

from kvbench.errors import UserError


def refusing_gradients(out: Tensor, of: Tensor) -> Tensor:
    """`out`, which was computed from `of` without a graph; a backward pass through it raises UserError."""
    if torch.is_grad_enabled() and of.requires_grad and not out.requires_grad:
        refusing: Tensor = _Refusing.apply(out, of)
        return refusing
    return out


class _Refusing(torch.autograd.Function):
    @staticmethod
    def forward(_: Any, out: Tensor, __: Tensor) -> Tensor:
        return out.view_as(out)

    @staticmethod
    def backward(_: Any, *__: Tensor) -> NoReturn:
        raise UserError(
            "attention over a compressed cache has no gradients: leave the kvbench.compress block for backward()"
        )
