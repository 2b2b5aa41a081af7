"""Keys of kept tokens at the positions 0, 1, 2, …, as a model gives them in a text of these tokens alone."""

import pytest
import torch

from kvbench.errors import UserError
from kvbench.methods import Eviction, KNorm, Rerotated, Selection
from kvbench.ops.rope import Rope
from tests.support.tiny import random_layer, tiny_model

ROPE = Rope.of(tiny_model())


def test_kept_keys_are_those_of_consecutive_positions_in_each_head():
    plain = random_layer(n=20).keys  # before RoPE
    layer = random_layer(n=20, rope=ROPE)
    layer.keys[:] = ROPE.rotate(plain, torch.arange(20))
    indices = torch.tensor([[0, 3, 4, 11, 19], [1, 2, 9, 10, 18]])
    cache = Rerotated().store(layer, Selection(indices, 5))
    for head, row in enumerate(indices):
        expected = ROPE.rotate(plain[head, row][None], torch.arange(5))[0]
        torch.testing.assert_close(cache.k.view[0, head, :5], expected, rtol=1e-5, atol=1e-5)
        assert torch.equal(cache.v.view[0, head, :5], layer.values[head, row])
    assert cache.get_seq_length() == 20


def test_one_set_of_a_layer_moves_all_heads_alike_and_the_first_tokens_do_not_move():
    layer = random_layer(n=20, rope=ROPE)
    cache = Rerotated().store(layer, Selection(torch.tensor([[0, 1, 2, 7]]), 4))
    torch.testing.assert_close(cache.k.view[0, :, :3], layer.keys[:, :3])
    torch.testing.assert_close(cache.k.view[0, :, 3], ROPE.rotate(layer.keys[:, 7:8], torch.tensor([-4]))[:, 0])


def test_everything_kept_is_stored_bit_for_bit():
    layer = random_layer(n=20, rope=ROPE)
    cache = Rerotated().store(layer, Selection.everything(layer))
    assert torch.equal(cache.k.view[0, :, :20], layer.keys)


def test_a_model_without_rope_is_refused():
    with pytest.raises(UserError, match="Rerotated needs a model with rotary position embeddings"):
        Eviction(scoring=KNorm(), storage=Rerotated()).compress_layer(random_layer(n=20), 0, 1, 5)
