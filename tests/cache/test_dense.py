"""A dense cache copies a new token's heads only where every query head has its own."""

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from kvbench.cache.dense import DenseLayer
from kvbench.cache.reserve_ratio import Kept
from kvbench.methods.think import ThinKeysLayer

KV, D, K = 2, 8, 12
KEPT = Kept(K, 2 * KV * K, 2 * KV * K)


class Copies(TorchFunctionMode):
    """Counts the tensors of repeated heads, each of which is a copy."""

    count = 0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.count += func in (Tensor.repeat_interleave, torch.repeat_interleave)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("heads, copies", [(KV, 0), (3 * KV, 2)])
@pytest.mark.parametrize("thin", [False, True])
def test_a_token_is_copied_only_for_unfolded_heads(heads, copies, thin):
    keys, values = torch.randn(2, heads, K, D)
    if thin:
        channels = torch.arange(4).expand(heads, -1)
        layer = ThinKeysLayer(keys, values, channels, 4, K, KEPT)
    else:
        layer = DenseLayer(keys, values, K, KEPT)
    new = torch.randn(2, 1, KV, 1, D)
    with Copies() as counted:
        layer.append(*new)
    assert counted.count == copies
    last = (layer.values if thin else layer.v).view[..., -1, :].reshape(heads, D)
    assert torch.equal(last, new[1, 0, :, 0].repeat_interleave(heads // KV, dim=0))
