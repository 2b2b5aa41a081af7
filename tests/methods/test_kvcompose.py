"""KVCompose: its scores from a second reading of the context."""

import torch

from kvbench.methods import KVCompose
from kvbench.prefill import ContextFrame, Needs, prefill, reconstruct
from tests.support.tiny import prompt, tiny_model

N = 30


def test_a_score_is_the_most_attention_of_the_context_read_behind_itself_and_the_mean_over_heads():
    scoring = KVCompose()
    (how,) = scoring.needs.reconstructions
    state = prefill(tiny_model(), prompt(N), Needs())
    reconstruct(tiny_model(), prompt(N), state, how, ContextFrame())
    plain = tiny_model(implementation="eager")
    with torch.inference_mode():
        attentions = plain(input_ids=prompt(N).repeat(2)[None], output_attentions=True).attentions
    for layer, weights in zip(state.layers, attentions, strict=True):
        most = weights[0, :, N:, :N].amax(dim=1).unflatten(0, (2, 3)).mean(dim=1)
        torch.testing.assert_close(scoring.votes(layer), most + most.mean(dim=0), rtol=1e-4, atol=1e-5)
        assert scoring.least(layer) == 0


def test_what_lies_outside_of_the_context_always_stays():
    scoring = KVCompose(sinks=3)
    (how,) = scoring.needs.reconstructions
    state = prefill(tiny_model(), prompt(N), Needs())
    reconstruct(tiny_model(), prompt(N), state, how, ContextFrame(end=25))
    votes = scoring.votes(state.layers[0])
    assert votes[:, :3].isposinf().all() and votes[:, 25:].isposinf().all() and votes[:, 3:25].isfinite().all()
    assert scoring.least(state.layers[0]) == 8
