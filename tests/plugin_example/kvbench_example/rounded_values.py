"""A storage: keys as they are, and values as int8 with one float16 scale for each token."""

from dataclasses import dataclass

import torch

from kvbench.methods import LayerCache, Storage, dense_attention


class RoundedLayer(LayerCache):
    """Keys [1, heads, len, head_dim]; values as codes of the same shape and scales [1, heads, len, 1]."""

    takes_blocks = True

    def __init__(self, keys, values, seen, kept):
        super().__init__(seen, kept)
        self.keys_held = keys[None].clone()
        self.codes, self.scales = rounded(values[None])

    def tensors(self):
        return [self.keys_held, self.codes, self.scales]

    def append(self, keys, values):
        copies = self.keys_held.shape[1] // keys.shape[1]  # one for each query head that selected for itself
        keys, values = keys.repeat_interleave(copies, dim=1), values.repeat_interleave(copies, dim=1)
        codes, scales = rounded(values)
        self.keys_held = torch.cat([self.keys_held, keys], dim=2)
        self.codes, self.scales = torch.cat([self.codes, codes], dim=2), torch.cat([self.scales, scales], dim=2)

    def attend(self, query, scaling):
        values = self.codes.to(query.dtype) * self.scales.to(query.dtype)
        return dense_attention(query, self.keys_held, values, scaling)


def rounded(values):
    """Codes, int8 of the shape of `values` [..., head_dim], and the scales [..., 1] that they are multiplied with."""
    scales = (values.float().abs().amax(dim=-1, keepdim=True) / 127).clamp(min=1e-4).half()
    return (values.float() / scales.float()).round().clamp(-127, 127).to(torch.int8), scales


@dataclass
class RoundedValues(Storage):
    def store(self, layer, selection):
        keys, values = selection.of(layer.keys), selection.of(layer.values)
        share = (values.shape[-1] + 2) / (values.shape[-1] * values.element_size())  # of the values' bytes
        return RoundedLayer(keys, values, layer.n, selection.kept(layer, r3=(1 + share) / 2))

    def least_share(self, element_bytes, layer=None):
        return (1 + 1 / element_bytes) / 2  # scales come on top
