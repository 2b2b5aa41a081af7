"""INT8: keys and values as eight-bit integers, as in vLLM's `int8_per_token_head`."""

from typing import Literal

import torch
from torch import Tensor

from kvbench.cache.base import Growing
from kvbench.cache.coded.float8 import scale_of
from kvbench.cache.coded.sequence import CodedSequence
from kvbench.methods.facts import Launches
from kvbench.methods.storage.base import KeptLayer, coded_share
from kvbench.methods.storage.coded import CodedStorage
from kvbench.utils.checked import checked

LARGEST = 127


@checked
class Int8(CodedStorage):
    """Keys and values in int8, which needs no float8 on a GPU, for the tokens that a method keeps.

    x ≈ s·c with c = round(x / s) in −127 … 127 and s = max|x| / 127, a float32 number per token and head, separately
    for keys and values. The error of an element is at most s / 2.
    Source: vLLM's documentation of `--kv-cache-dtype int8_per_token_head`; there is no paper.
    """

    launches = Launches(decode=66)  # for the codes and scales of a new token

    def sequence(self, which: Literal["k", "v"], rows: Tensor) -> "Int8Sequence":
        return Int8Sequence(rows)

    def least_share(self, element_bytes: int, layer: KeptLayer | None = None) -> float:
        bits = 8 if layer is None else 8 + 32 / layer.head_dim
        return coded_share(bits, bits, element_bytes, layer)


class Int8Sequence(CodedSequence):
    """Rows as int8 codes [heads, len, head_dim], and the scale of each [heads, len, 1]."""

    def __init__(self, rows: Tensor):
        """rows [heads, len, head_dim]"""
        self.dtype, (self.heads, _, self.width) = rows.dtype, rows.shape
        self.parts = [Growing(part) for part in self.encoded(rows)]

    def encoded(self, rows: Tensor) -> list[Tensor]:
        scales = scale_of(
            rows, "token", LARGEST
        )  # NaN or infinity in a row makes its scale, and so the whole row, NaN or infinite
        return [(rows / scales).round_().nan_to_num_(0).to(torch.int8), scales]

    def decoded(self, tokens: slice) -> Tensor:
        return self.parts[0].buffer[:, tokens].float()

    def scale(self, count: int) -> Tensor:
        return self.parts[1].buffer[:, :count, 0]
