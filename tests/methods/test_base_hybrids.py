"""Every file of conf/method compresses the layers that keep keys and values, and leaves states as they are."""

from functools import cache

import pytest
import torch

from kvbench.cache.base import LayerCache
from kvbench.cache.linear_state import LinearState
from kvbench.cache.reserve_ratio import ReserveRatio
from kvbench.errors import UserError
from kvbench.evaluation.cache_checks import check_bytes
from kvbench.evaluation.decode import batched, decode, read
from kvbench.evaluation.prefill_passes import SharedPass
from kvbench.models.attending_layer import AttendingLayer
from kvbench.models.layer_kinds import compressed_layers, kinds_of
from kvbench.prefill import ContextFrame, FullPrefill, Needs, Reconstruction, reconstruct
from tests.support.every_method import LAYERS, PRUNED, check_kept, observed, setting
from tests.support.hybrids import WINDOW, hybrid_model
from tests.support.representatives import KINDS, every_third
from tests.support.tiny import prompt

N, STEPS = 100, 4
TOKEN = 2 * 2 * 32 * 4
OTHERS = {  # bytes of the layers that no method compresses
    "qwen3_next": LAYERS * (4 * 8 * 8 + 4 * (2 * 8 + 2 * 8 + 4 * 8)) * 4,
    "gemma4_text": LAYERS * (WINDOW - 1) * TOKEN,
}


@cache
def model(family: str):
    return hybrid_model(family)


@cache
def shared_pass(family: str) -> SharedPass:
    needs = observed() | Needs(reconstructions=frozenset([Reconstruction(chunk=40)]))
    return SharedPass(model(family), prompt(N), FullPrefill(), needs)


@pytest.mark.parametrize(
    ("family", "name"),
    every_third(
        (
            (family, name)
            for family, names in zip(OTHERS, (KINDS, KINDS[::2]), strict=True)
            for name in names
            if name not in PRUNED
        ),
        ("gemma4_text", "omnikv"),
    ),
)
def test_a_preset_compresses_the_layers_that_keep_all_tokens(family, name):
    one = setting(name, 0.3)
    budget = one.budget_at(N, LAYERS)
    compressed = shared_pass(family).compress(one.method, budget)
    layers = [cache for cache in compressed.caches if cache.kept is not None]
    places = [place for place, cache in enumerate(compressed.caches) if cache.kept is not None]
    assert places == compressed_layers(kinds_of(model(family).config))
    check_bytes([cache for cache in compressed.caches if isinstance(cache, LayerCache | LinearState)])
    assert compressed.window_bytes == compressed.fixed_bytes == OTHERS[family]
    assert compressed.full_bytes == LAYERS * N * TOKEN + OTHERS[family]
    before = [tensor.clone() for cache in shared_pass(family).state.fixed_layers.values() for tensor in cache.tensors()]
    cache = batched([compressed.caches])
    (output,) = decode(model(family), cache, compressed.logits[None], STEPS, frozenset())
    assert len(output.tokens) == STEPS and output.not_finite is None
    check_kept(one, layers, N, budget, LAYERS * N * TOKEN)
    logits = read(model(family), cache, prompt(5, seed=1))  # a further turn
    assert logits.isfinite().all()
    seen = {cache.get_seq_length() for cache in compressed.caches if isinstance(cache, AttendingLayer)}
    seen |= {layer.get_seq_length() for layer in cache.attending}
    assert N + STEPS - 1 + 5 in seen
    after = [tensor for cache in shared_pass(family).state.fixed_layers.values() for tensor in cache.tensors()]
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))


REFUSED = [
    ("qwen3_next", "pyramidinfer", "has layers with a sliding window, a state of fixed size"),
    ("gemma4_text", "pyramidinfer_official", "has layers with a sliding window, a state of fixed size"),
    ("gemma3n_text", "squeeze", "no single stream of hidden states"),
    ("nemotron_h", "squeeze", "no decoder layers with self_attn"),
    ("nemotron_h", "criticalkv_snapkv", "no layers with the weight of an output projection"),
    ("jamba", "expected_attention", "needs a model with rotary position embeddings"),
    ("jamba", "spindle", "needs a model with rotary position embeddings"),
    ("jamba", "kvzip", "read a second time, but the states of a jamba model are lost"),
    ("jamba", "keydiff_paper", "dropped chunk by chunk, but the states of a jamba model are lost"),
]


@pytest.mark.parametrize(("family", "name", "reason"), REFUSED)
def test_a_method_that_needs_what_a_layer_lacks_says_so_in_one_line(family, name, reason):
    one = setting(name, 0.3)
    budget = one.budget_at(N, LAYERS)
    with pytest.raises(UserError, match=reason) as error:
        source = SharedPass(model(family), prompt(N), one.method.plan(N, LAYERS, budget), one.method.needs)
        source.compress(one.method, budget)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("family", ["qwen3_next", "qwen3_5_text", "gemma4_text", "gemma3n_text"])
def test_rotated_keys_are_turned_back_to_what_the_model_rotated(family):
    seen = []
    place = compressed_layers(kinds_of(model(family).config))[0]
    attention = model(family).model.layers[place].self_attn
    hook = attention.k_norm.register_forward_hook(lambda module, args, output: seen.append(output))
    layer = SharedPass(model(family), prompt(N), FullPrefill(), Needs()).state.layers[0]
    hook.remove()
    last = seen[-1][0]  # of the pass over the prompt: the first ones find out which layers rotate
    before = last.transpose(0, 1) if last.shape[0] == N else last  # [num_key_value_heads, n, head_dim]
    found = layer.rope.rotate(layer.keys, -torch.arange(layer.n))
    torch.testing.assert_close(found, before, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("family", ["qwen3_next", "lfm3", "gemma4_text"])
def test_a_second_pass_starts_from_the_state_at_the_contexts_end(family):
    """A context in the middle of a prompt gets the scores that it has at the end of a shorter one."""
    end, how = 80, Reconstruction(chunk=30, requests=None)
    needs = Needs(reconstructions=frozenset([how]))
    found = []
    for n in (end, N):
        ids = prompt(N)[:n]
        state = FullPrefill().run(model(family), ids, needs)
        reconstruct(model(family), ids, state, how, ContextFrame(end=end))
        found.append([layer.reconstruction[how].scores[:, :end] for layer in state.layers])
    for short, long in zip(*found, strict=True):
        torch.testing.assert_close(long, short, rtol=1e-3, atol=1e-4)


def test_the_worked_example_of_qwen3_next():
    """12 layers with attention, 36 with a state of 32·128·128 float32 and 4·8192 16-bit numbers: docs/reserve-ratio."""
    states = 36 * (32 * 128 * 128 * 4 + 4 * 8192 * 2)
    for n, whole, floor in ((8192, 0.4231, 0.2789), (131072, 0.2189, 0.0236)):
        fields = ReserveRatio(0.2, 1, 1, 0.2, 0.2, 0.2, full_bytes=12 * n * 2 * 2 * 256 * 2).fields(states)
        assert fields["r_bytes"] == pytest.approx(whole, abs=1e-4)
        assert fields["r_bytes_floor"] == pytest.approx(floor, abs=1e-4)


def test_a_state_has_the_dtypes_that_the_model_gives_it():
    """The delta rule's is in float32 in 16-bit models, the convolution's in the model's dtype."""
    source = SharedPass(hybrid_model("qwen3_next").to(torch.bfloat16), prompt(9), FullPrefill(), Needs())
    state = source.state.fixed_layers[0]
    assert (state.conv_states[0].dtype, state.recurrent_states[0].dtype) == (torch.bfloat16, torch.float32)
    assert state.filled_bytes == 4 * 8 * 8 * 4 + 4 * (2 * 8 + 2 * 8 + 4 * 8) * 2
