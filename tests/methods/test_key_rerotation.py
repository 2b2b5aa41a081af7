"""Kept tokens stand as in a text of these tokens alone, and the next token right behind them."""

import pytest
import torch

from kvbench.errors import UserError
from kvbench.evaluation.decode import batched, read_all
from kvbench.methods import Dense, Eviction, KNorm, Rerotated, Selection
from kvbench.ops.rope import Rope
from kvbench.prefill import Needs, prefill
from tests.support.tiny import random_layer, tiny_model

ROPE = Rope.from_model(tiny_model())


def test_kept_keys_are_those_of_consecutive_positions_in_each_head():
    plain = random_layer(n=20).keys  # before RoPE
    layer = random_layer(n=20, rope=ROPE)
    layer.keys[:] = ROPE.rotate(plain, torch.arange(20))
    indices = torch.tensor([[0, 3, 4, 11, 19], [1, 2, 9, 10, 18]])
    cache = Rerotated().store(layer, Selection(indices, 5))
    for head, row in enumerate(indices):
        expected = ROPE.rotate(plain[head, row][None], torch.arange(15, 20))[0]
        torch.testing.assert_close(cache.k.view[0, head, :5], expected, rtol=1e-5, atol=1e-5)
        assert torch.equal(cache.v.view[0, head, :5], layer.values[head, row])
    assert cache.get_seq_length() == 20


def test_one_set_of_a_layer_moves_all_heads_alike_and_the_last_tokens_do_not_move():
    layer = random_layer(n=20, rope=ROPE)
    cache = Rerotated().store(layer, Selection(torch.tensor([[7, 17, 18, 19]]), 4))
    torch.testing.assert_close(cache.k.view[0, :, 1:4], layer.keys[:, 17:])
    torch.testing.assert_close(cache.k.view[0, :, 0], ROPE.rotate(layer.keys[:, 7:8], torch.tensor([9]))[:, 0])


def test_a_prompt_without_its_first_tokens_continues_as_the_text_of_the_others():
    """Of one layer, whose keys and values depend on no earlier token."""
    model = tiny_model(num_layers=1)
    ids = torch.arange(3, 27)
    with torch.inference_mode():
        state = prefill(model, ids[:20], Needs())
        (layer,) = state.layers
        dropping = torch.tensor([[5, 6, 9, 10, 11, 15, 19]])
        cache = Rerotated().store(layer, Selection(dropping, 7))
        ours = read_all(model, batched([[cache]]), ids[20:])[0]
        text = torch.cat([ids[dropping[0]], ids[20:]])
        alone = tiny_model(implementation="eager", num_layers=1)(text[None]).logits[0, -4:]
        apart = read_all(model, batched([[Dense().store(layer, Selection(dropping, 7))]]), ids[20:])[0]
    torch.testing.assert_close(ours, alone, rtol=1e-4, atol=1e-5)
    assert (apart - alone).abs().max() > 1e-3  # gaps show


def test_everything_kept_is_stored_bit_for_bit():
    layer = random_layer(n=20, rope=ROPE)
    cache = Rerotated().store(layer, Selection.everything(layer))
    assert torch.equal(cache.k.view[0, :, :20], layer.keys)


def test_a_model_without_rope_is_refused():
    with pytest.raises(UserError, match="Rerotated needs a model with rotary position embeddings"):
        Eviction(scoring=KNorm(), storage=Rerotated()).compress_layer(random_layer(n=20), 0, 1, 5)
