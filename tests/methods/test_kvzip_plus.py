"""KVzip+: attention of a second pass times ‖W_o v‖ over ‖h‖, against one plain pass with the model's own modules."""

import pytest
import torch
from torch.testing import assert_close

from kvbench.errors import UserError
from kvbench.methods import KVzip
from kvbench.methods.kvzip.plus import KVzipPlus, RelativeReconstruction
from kvbench.prefill import ContextFrame, Needs, prefill, reconstruct, second_pass
from tests.support.hybrids import hybrid_model
from tests.support.tiny import LAYOUTS, prompt, tiny_model

N, CHUNK = 40, 15


def scores_of(model, how) -> list[torch.Tensor]:
    """Of each layer, [num_key_value_heads, N], where the context is the whole prompt."""
    state = prefill(model, prompt(N), Needs(reconstructions=frozenset([how])))
    reconstruct(model, prompt(N), state, how, ContextFrame())
    return [layer.reconstruction[how].scores for layer in state.layers]


def plain(model, start: int, stop: int) -> list[torch.Tensor]:
    """The same of the tokens start … stop-1, from one pass over the prompt and a copy of these behind it."""
    ids, hidden = torch.cat([prompt(N), prompt(N)[start:stop]]), []
    modules = [layer.self_attn for layer in model.model.layers]
    hooks = [
        module.register_forward_pre_hook(
            lambda _, args, kwargs: hidden.append(kwargs["hidden_states"][0]), with_kwargs=True
        )
        for module in modules
    ]
    layers = prefill(model, ids, Needs(window=stop - start)).layers
    for hook in hooks:
        hook.remove()
    scores = []
    for layer, module, states in zip(layers, modules, hidden, strict=True):
        group = layer.num_attention_heads // layer.num_key_value_heads
        seen = [*range(4), *range(start, stop), *range(N, len(ids))]
        keys, values = (x[:, seen].repeat_interleave(group, dim=0) for x in (layer.keys, layer.values))
        logits = layer.queries @ keys.mT * layer.scaling
        logits[..., -(stop - start) :] += torch.full((stop - start, stop - start), float("-inf")).triu(1)
        weights = logits.softmax(dim=-1)[..., 4 : 4 + stop - start]
        for head, own in enumerate(values[:, 4 : 4 + stop - start]):
            alone = torch.zeros(stop - start, len(values), own.shape[-1])
            alone[:, head] = own
            weights[head] *= module.o_proj(alone.flatten(1)).norm(dim=-1)
        weights /= states[N:].norm(dim=-1)[:, None]
        scores.append(weights.amax(dim=1).unflatten(0, (-1, group)).amax(dim=1))
    return scores


@pytest.mark.parametrize("in_parts", [True, False], ids=["known log-sums", "whole softmax"])
@pytest.mark.parametrize("layout", LAYOUTS)
@torch.inference_mode()
def test_scores_are_those_of_one_plain_pass(layout, in_parts, monkeypatch):
    if not in_parts:
        monkeypatch.setattr(second_pass, "attention_in_parts", lambda *_: None)
    model = tiny_model(layout=layout)
    scores = scores_of(model, RelativeReconstruction(CHUNK, requests=None))
    for start in range(4, N, CHUNK):
        stop = min(start + CHUNK, N)
        for found, expected in zip(scores, plain(model, start, stop), strict=True):
            assert_close(found[:, start:stop], expected, atol=1e-6, rtol=1e-3)


@pytest.mark.parametrize("group", ["max", "mean"])
def test_a_model_keeps_no_hooks_and_its_scores_of_plain_attention(group):
    model = tiny_model()
    how = KVzip(chunk=CHUNK)._how
    before = scores_of(model, how)
    relative = scores_of(model, RelativeReconstruction(CHUNK, group=group))
    assert not any(torch.equal(a, b) for a, b in zip(before, relative, strict=True))
    assert not any(layer.self_attn._forward_pre_hooks for layer in model.model.layers)
    assert all(torch.equal(a, b) for a, b in zip(before, scores_of(model, how), strict=True))


def test_a_pass_is_its_own_beside_kvzips_with_the_same_parameters():
    plus, plain = KVzipPlus(chunk=50), KVzip(chunk=50)
    assert len((plus.needs | plain.needs).reconstructions) == 2
    (how,) = plus.needs.reconstructions
    assert isinstance(how, RelativeReconstruction) and vars(how) == vars(*plain.needs.reconstructions)


def test_a_model_without_output_projections_is_refused_in_one_line():
    with pytest.raises(UserError, match="no layers with the weight of an output projection, which norms") as error:
        scores_of(hybrid_model("nemotron_h"), RelativeReconstruction())
    assert "\n" not in str(error.value)
