"""INT8: keys and values as eight-bit integers, as in vLLM's `int8_per_token_head`."""

import torch
from torch import Tensor

from kvbench.cache.base import Growing, LayerCache
from kvbench.cache.coded.float8 import scale_of
from kvbench.cache.coded.layer import CodedLayer
from kvbench.cache.coded.sequence import CodedSequence
from kvbench.methods.facts import Launches
from kvbench.methods.selection import Selection
from kvbench.methods.storage.base import KeptLayer, Storage, coded_share
from kvbench.methods.storage.by_head import by_head
from kvbench.prefill import LayerState
from kvbench.utils.checked import checked

LARGEST = 127


@checked
class Int8(Storage):
    """Keys and values in int8, which needs no float8 on a GPU, for the tokens that a method keeps.

    x ≈ s·c with c = round(x / s) in −127 … 127 and s = max|x| / 127, a float32 number per token and head, separately
    for keys and values. The error of an element is at most s / 2. Tokens are quantised when they are appended, keys
    after RoPE.
    Source: vLLM's documentation of `--kv-cache-dtype int8_per_token_head`; there is no paper.
    """

    never_full = "quantised"
    launches = Launches(decode=66)  # for the codes and scales of a new token

    takes_ragged = True

    @by_head
    def store(self, layer: LayerState, selection: Selection) -> LayerCache:
        keys, values = (Int8Sequence(selection.of(x)) for x in (layer.keys, layer.values))
        kept = selection.kept(layer, r3=layer.mean_share(keys.share, values.share))
        return CodedLayer(keys, values, layer.n, kept)

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
