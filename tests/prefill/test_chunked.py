"""A prompt prefilled in chunks leaves what it leaves in one piece, up to rounding."""

import pytest
import torch
from torch.nn.attention.bias import CausalBias

from kvbench.errors import UserError
from kvbench.evaluation.decode import generate
from kvbench.ops.attention import lower_right
from kvbench.prefill import Blocks, FullPrefill, Needs, in_chunks, prefill
from kvbench.prefill.chunked import ChunkedLayer, ChunkedPrefill, chunked_prefill
from kvbench.prefill.pruned import PrunedPrefill
from kvbench.records import load
from tests.support.command import command_line
from tests.support.every_method import setting
from tests.support.fake_devices import FakeDevices, device_of, place
from tests.support.runs import arguments, compose, outcomes, run
from tests.support.tiny import LAYOUTS, prompt, tiny_model

N = 90
BLOCKS = frozenset({Blocks(16), Blocks(7, 8, 4), Blocks(200, 3, 1, True), Blocks(30, 60, 40)})
NEEDS = Needs(20, True, True, frozenset({8, 32}), frozenset({0, 20}), True, block_sums=BLOCKS)
OBSERVED = ("keys", "values", "queries", "column_sums", "lse", "value_output_norm")


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("chunk", [1, 16, 37, 89])
def test_keys_values_observations_and_logits_are_those_of_one_piece(layout, chunk):
    model = tiny_model(layout=layout)
    whole, parts = (plan.run(model, prompt(N), NEEDS) for plan in (FullPrefill(), ChunkedPrefill(chunk)))
    torch.testing.assert_close(parts.logits, whole.logits, rtol=1e-4, atol=1e-4)
    for a, b in zip(parts.layers, whole.layers, strict=True):
        assert (a.n, a.scaling, a.num_attention_heads) == (b.n, b.scaling, b.num_attention_heads)
        for name in OBSERVED:
            torch.testing.assert_close(getattr(a, name), getattr(b, name), rtol=1e-4, atol=1e-4)
        assert a.lookahead_sums.keys() == b.lookahead_sums.keys()
        for w, sums in b.lookahead_sums.items():
            torch.testing.assert_close(a.lookahead_sums[w], sums, rtol=1e-4, atol=1e-4)
        assert a.block_sums.keys() == b.block_sums.keys() == BLOCKS
        for blocks, sums in b.block_sums.items():
            torch.testing.assert_close(a.block_sums[blocks], sums, rtol=1e-4, atol=1e-4)
        assert a.query_moments.keys() == b.query_moments.keys()
        for skip, moments in b.query_moments.items():
            torch.testing.assert_close(a.query_moments[skip].mean, moments.mean, rtol=1e-4, atol=1e-4)
            torch.testing.assert_close(a.query_moments[skip].covariance, moments.covariance, rtol=1e-4, atol=1e-4)
        assert a.index == b.index
        assert a.hidden_similarity == pytest.approx(b.hidden_similarity, abs=1e-5)
        assert a.keys.is_contiguous() and a.nbytes == b.nbytes


def test_queries_that_attend_to_later_tokens_wait_beside_a_gpu(monkeypatch):
    """Those of all layers and 128k tokens take more than its memory."""
    where = []

    def watched(layer, w, keys, scaling):
        where.extend(str(device_of(block)) for block in layer.queries)
        return sums(layer, w, keys, scaling)

    sums = ChunkedLayer.lookahead_sums
    monkeypatch.setattr(ChunkedLayer, "lookahead_sums", watched)
    with FakeDevices():
        state = ChunkedPrefill(37).run(place(tiny_model(), gpus=1), prompt(N), Needs(lookahead_sums=frozenset({8})))
    assert where == ["cpu"] * 9  # 3 chunks of 3 layers
    assert {str(device_of(layer.lookahead_sums[8])) for layer in state.layers} == {"cuda:0"}


def test_in_bfloat16_logits_are_those_of_one_piece_up_to_its_rounding():
    model = tiny_model().to(torch.bfloat16)
    whole, parts = (plan.run(model, prompt(N), NEEDS) for plan in (FullPrefill(), ChunkedPrefill(24)))
    gap = (parts.logits - whole.logits).abs().max() / whole.logits.abs().max()
    assert gap < 0.05
    torch.testing.assert_close(parts.layers[0].keys, whole.layers[0].keys, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize(
    "name", ["full", "h2o", "snapkv", "pyramidkv", "spindle", "squeeze", "kivi", "minicache", "expected_attention"]
)
def test_every_setting_keeps_the_same_tokens_and_decodes_the_same_text(name):
    model, one = tiny_model(num_layers=4, head_dim=32).double(), setting(name, ratio=0.4)
    budget = one.budget_at(N, 4)
    kept = []
    for plan in (FullPrefill(), ChunkedPrefill(32)):
        state = plan.run(model, prompt(N), one.method.needs)
        with torch.inference_mode():
            caches = one.method.compress(state, budget)
        tokens = generate(model, caches, state.logits, 6, frozenset()).tokens
        kept.append(([cache.kept for cache in caches], tokens))
    assert kept[0] == kept[1]


def test_a_release_gets_each_layer_once_it_is_complete():
    model, released = tiny_model().double(), []
    state = chunked_prefill(model, prompt(N), Needs(), 32, released.append)
    assert state.layers == [] and [layer.n for layer in released] == [N] * 3
    expected = prefill(model, prompt(N), Needs()).layers
    for a, b in zip(released, expected, strict=True):
        torch.testing.assert_close(a.keys, b.keys)


def test_a_prompt_of_one_chunk_is_computed_in_one_piece():
    model = tiny_model()
    assert torch.equal(ChunkedPrefill(N).run(model, prompt(N), NEEDS).logits, prefill(model, prompt(N), NEEDS).logits)


def test_passes_that_need_the_whole_prompt_are_refused_in_one_line():
    pruned = PrunedPrefill((1.0, 0.5), 4, 0, 0, 1.0)
    assert in_chunks(pruned, None) is pruned and in_chunks(FullPrefill(), 5) == ChunkedPrefill(5)
    with pytest.raises(UserError, match=r"^prefill\.chunk=5: "):
        in_chunks(pruned, 5)


@pytest.mark.parametrize(
    "overrides, line",
    [
        (("method=snapkv", "ratio=0.2", "memory=stream"), "memory=stream frees a layer before the next one"),
        (("method=full", "benchmark=speed"), "benchmark=speed frees a layer before the next one"),
        (("method=pyramidinfer",), "'pyramidinfer' drops tokens while the prompt is read"),
        (("probe=attention_entropy",), "probes observe a layer's whole prompt"),
    ],
)
def test_what_cannot_be_had_in_chunks_is_one_line(overrides, line, tmp_path, capsys):
    assert command_line("prefill.chunk=64", f"output_dir={tmp_path}", *overrides) == 2
    assert f"prefill.chunk=64: {line}" in capsys.readouterr().err


@pytest.mark.parametrize("chunk", [0, -1, "all", True, 1.5])
def test_a_chunk_that_is_no_number_of_tokens_is_refused(chunk):
    config = compose()
    with pytest.raises(UserError, match=r"prefill\.chunk"):
        config.changed(prefill={"chunk": chunk})


def test_the_mask_of_a_chunk_has_no_elements_on_a_gpu():
    assert lower_right(2, 5, torch.device("cpu")).tolist() == [[True] * 4 + [False], [True] * 5]
    bias = lower_right(2, 5, torch.device("cuda"))
    assert isinstance(bias, CausalBias) and (bias.seq_len_q, bias.seq_len_kv) == (2, 5)


@pytest.mark.heavy
def test_a_run_in_chunks_makes_the_records_of_one_in_one_piece(undisturbed, tiny_folder, tmp_path):
    folder = run(*arguments(tiny_folder, tmp_path, "prefill.chunk=100"))
    assert load(undisturbed)["close_call"].isna().all(), "rounding could turn a token"
    assert folder.name == undisturbed.name and outcomes(folder) == outcomes(undisturbed)
