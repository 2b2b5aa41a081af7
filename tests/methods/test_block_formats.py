"""Storage in block formats: bytes, attention over codes, rotation, growth, heads of different lengths."""

import pytest
import torch
from torch.testing import assert_close

from kvbench.cache.coded.block_format import BlockSequence
from kvbench.errors import UserError
from kvbench.methods import FullKV, Ggml, Microscaling
from kvbench.methods.selection import Selection
from kvbench.ops.formats import GGML, MICROSCALING
from tests.support.quantised import TOLERANCE, check_attention, check_own_memory
from tests.support.tiny import random_layer, random_state

STORAGES = {
    "q8_0": Ggml(),
    "q8_0 q4_0": Ggml("q8_0", "q4_0"),
    "q5_1 q5_0": Ggml("q5_1", "q5_0"),
    "iq4_nl rotated": Ggml("iq4_nl", "iq4_nl", "hadamard"),
    "nvfp4": Microscaling("nvfp4", "nvfp4"),
    "nvfp4 rotated": Microscaling("nvfp4", "nvfp4", "haar"),
    "mxfp4 mxfp6": Microscaling("mxfp4", "mxfp6_e3m2"),
    "mxfp8": Microscaling(),
}


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("name", STORAGES)
@pytest.mark.parametrize("granularity", ["kv_head", "query_head"])
def test_attention_over_codes_is_attention_over_the_restored_rows(name, granularity, dtype):
    check_attention(STORAGES[name], granularity, random_layer(n=40, head_dim=32, dtype=dtype))


@pytest.mark.parametrize(
    ("storage", "share"),
    [
        (Ggml("q8_0", "q4_0"), (8.5 + 4.5) / 32),
        (Ggml("q5_1", "q4_1"), (6 + 5) / 32),
        (Microscaling("mxfp4", "mxfp8_e4m3"), (4.25 + 8.25) / 32),
        (Microscaling("nvfp4", "nvfp4"), 4.5 / 16 + 4 / 100 / 256),  # and a float32 number for each head
    ],
)
def test_bytes_are_those_of_codes_and_scales(storage, share):
    layer = random_layer(2, 1, 100, 128, dtype=torch.bfloat16)
    cache = storage.store(layer, Selection.everything(layer))
    assert cache.kept.r3 == cache.nbytes / layer.nbytes == pytest.approx(share, abs=1e-12)


@pytest.mark.parametrize("form", [*GGML.values(), MICROSCALING["mxfp4"], MICROSCALING["mxfp8_e4m3"]])
def test_a_prompt_quantised_at_once_is_one_quantised_token_by_token(form):
    rows = torch.randn(2, 9, 32)
    whole, grown = BlockSequence(rows, form), BlockSequence(rows[:, :4], form)
    for i in range(4, 9):
        grown.append(rows[:, i : i + 1])
    assert torch.equal(whole.read(), grown.read())


def test_decoded_tokens_beyond_the_prompts_scale_are_cut_off_by_nvfp4():
    prompt, large = torch.ones(1, 3, 16), torch.full((1, 1, 16), 5.0)
    sequence = BlockSequence(prompt, MICROSCALING["nvfp4"])
    sequence.append(large)
    assert_close(sequence.read()[0, -1], torch.ones(16))


@pytest.mark.parametrize("kind", ["hadamard", "plain_hadamard", "haar"])
def test_a_rotation_spreads_an_outlier_and_is_undone(kind):
    rows = torch.randn(2, 50, 64, generator=torch.Generator().manual_seed(3))
    rows[..., 5] *= 30  # a channel of large keys
    error = {
        rotated: (BlockSequence(rows, GGML["q4_0"], rotated).read() - rows)[..., torch.arange(64) != 5].square().mean()
        for rotated in (None, kind)
    }
    assert error[kind] < 0.8 * error[None]


@pytest.mark.parametrize("name", STORAGES)
def test_heads_of_different_lengths_are_what_each_is_alone(name):
    layer = random_layer(6, 2, 60, 32)
    chosen = torch.rand(2, 60) < torch.tensor([[0.9], [0.3]])
    cache = STORAGES[name].store(layer, Selection(None, 20, chosen=chosen))
    query = torch.randn(1, 6, 1, 32)
    out = cache.attend(query, layer.scaling)
    for number, head in enumerate(cache.parts):
        assert_close(
            out[:, number * 3 : number * 3 + 3], head.attend(query[:, number * 3 : number * 3 + 3], layer.scaling)
        )


@pytest.mark.parametrize(
    ("storage", "channels", "head_dim"),
    [(Ggml(), 32, 48), (Microscaling(v="mxfp4"), 32, 80), (Microscaling("nvfp4", "nvfp4"), 16, 8)],
)
def test_a_head_dimension_that_blocks_do_not_fill_is_refused(storage, channels, head_dim):
    layer = random_layer(n=10, head_dim=head_dim)
    with pytest.raises(UserError, match=f"among {channels} channels.* head dimension of {head_dim} "):
        storage.store(layer, Selection.everything(layer))


@pytest.mark.parametrize("wrong", [{"k": "q3_0"}, {"v": "mxfp4"}, {"rotation": "fourier"}])
def test_wrong_formats_are_named(wrong):
    with pytest.raises(UserError, match=next(iter(wrong))):
        Ggml(**wrong)


@pytest.mark.parametrize("name", STORAGES)
def test_nothing_of_the_prefill_state_is_kept(name):
    state = random_state(2, n=5, head_dim=32)
    check_own_memory(FullKV(STORAGES[name]).compress(state, 5), state.layers)
