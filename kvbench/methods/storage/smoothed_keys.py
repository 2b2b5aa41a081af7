"""Smoothed keys: codes of keys from which the mean of each channel was subtracted."""

from dataclasses import field
from typing import Literal

import torch
from torch import Tensor

from kvbench.cache.coded.sequence import CodedSequence
from kvbench.methods.facts import Launches
from kvbench.methods.storage.base import KeptLayer
from kvbench.methods.storage.coded import CodedStorage
from kvbench.methods.storage.fp8 import Fp8
from kvbench.utils.checked import checked


@checked
class SmoothedKeys(CodedStorage):
    """Keys less the mean of each of their channels, in any storage of codes; values in that storage.

    k' = k - m, with m the mean of a head's kept prompt tokens, stored once in the model's dtype; decoded tokens lose
    the same m. A channel that is large and nearly constant, as a bias of the key projection makes it, then no longer
    decides the scale that it shares with other channels. The product q·m is the same for all tokens, and a softmax
    would not change without it. It is added to the logits because soft caps and sinks see it.

    storage   the storage of the codes.

    Source: "smooth K" of Zhang et al. 2024, SageAttention (arXiv 2410.02367, section 4.2), whose kernel quantises such
    keys while it attends. A cache that stores them is kvbench's transfer.
    """

    storage: CodedStorage = field(default_factory=Fp8)

    @property
    def launches(self) -> Launches:
        """Four more of a decoded token: its difference, m in float32, q·m and the sum."""
        inner = self.storage.launches
        return inner._replace(decode=inner.decode + 4)

    def most_share(self, tokens: int) -> float:
        return self.storage.most_share(tokens) + 0.5 / tokens  # the mean is as large as one token's keys

    def codes(self, index: int, num_layers: int) -> bool:
        return self.storage.codes(index, num_layers)

    def sequence(self, which: Literal["k", "v"], rows: Tensor) -> CodedSequence:
        if which == "v":
            return self.storage.sequence(which, rows)
        mean = mean_of(rows)
        return CentredSequence(self.storage.sequence(which, rows - mean), mean)

    def least_share(self, element_bytes: int, layer: KeptLayer | None = None) -> float:
        return self.storage.least_share(element_bytes, layer)


class CentredSequence(CodedSequence):
    """Rows less a mean [heads, 1, head_dim] in `codes`, with which it shares the codes' tensors."""

    def __init__(self, codes: CodedSequence, mean: Tensor):
        self.inner, self.mean = codes, mean
        self.dtype, self.heads, self.width, self.parts = codes.dtype, codes.heads, codes.width, codes.parts

    def encoded(self, rows: Tensor) -> list[Tensor]:
        return self.inner.encoded(rows - self.mean)

    def decoded(self, tokens: slice) -> Tensor:
        return self.inner.decoded(tokens)

    def logits(self, query: Tensor, scaling: float, count: int) -> Tensor:
        return self.inner.logits(query, scaling, count).add_(query @ self.mean.mT.float(), alpha=scaling)

    def restored(self) -> Tensor:
        return self.inner.restored() + self.mean

    def tensors(self) -> list[Tensor]:
        return [*self.inner.tensors(), self.mean]

    def float32_tensors(self) -> list[Tensor]:
        return self.inner.float32_tensors()

    @property
    def filled_bytes(self) -> int:
        return self.inner.filled_bytes + self.mean.nbytes


def mean_of(rows: Tensor) -> Tensor:
    """The mean of rows [heads, len, head_dim] in their dtype, [heads, 1, head_dim]; numbers that are not finite count
    as 0, so that they stay in their tokens. It is 0 for fewer than two rows: a single token less itself is no row from
    which a storage could take the scale of later tokens."""
    total = rows.nan_to_num(0.0, 0.0, 0.0).sum(dim=1, keepdim=True, dtype=torch.float32)
    count = rows.shape[1]
    return (total / count if count > 1 else torch.zeros_like(total)).to(rows.dtype)
