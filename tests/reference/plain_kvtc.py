"""KVTC read component by component: equal steps between the ends of each, and what an allocation leaves."""

from collections.abc import Sequence

import torch
from torch import Tensor


def left(variances: Tensor, bits: Sequence[int]) -> float:
    """Squared error of components under b bits each: variance / 4^b."""
    return sum(float(v) / 4**b for v, b in zip(variances, bits, strict=True))


def restored(vectors: Tensor, axes: Tensor, bits: Sequence[int]) -> Tensor:
    """Vectors [t, channels] from their components along axes [n, channels], each of so many bits."""
    mean = vectors.mean(dim=0)
    out = mean.expand_as(vectors).clone()
    for axis, b in zip(axes, bits, strict=True):
        component = (vectors - mean) @ axis
        step = (component.max() - component.min()) / (2**b - 1)
        codes = ((component - component.min()) / step).round()
        out += torch.outer(component.min() + step * codes, axis)
    return out
