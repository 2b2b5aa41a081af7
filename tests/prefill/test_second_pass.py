"""KVzip's second pass: the scores of a plain forward pass over prompt, request and chunk, in little memory."""

from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from kvbench.errors import UserError
from kvbench.models.rope_growth import Growth
from kvbench.prefill import ContextFrame, Needs, PrefillState, Reconstruction, prefill, reconstruct, second_pass
from kvbench.prefill.chunked import ChunkedPrefill
from kvbench.prefill.reconstruction import largest_attention
from tests.support import launch_counts
from tests.support.fake_devices import FakeDevices
from tests.support.sliding import sliding_model
from tests.support.tiny import FAMILIES, LAYOUTS, prompt, tiny_model

N, PREFIX, END = 70, 7, 61
HOW = Reconstruction(chunk=20, lead=3)
# a tokenizer of one token per character, for requests of our own
FRAME = ContextFrame(PREFIX, END, suffix=(5, 9), encode=lambda text: [10 + ord(character) % 50 for character in text])


def again(model, how=HOW, frame=FRAME, ids=None, state: PrefillState | None = None) -> list[torch.Tensor]:
    """The scores of each layer after both passes."""
    ids = prompt(N) if ids is None else ids
    state = prefill(model, ids, Needs()) if state is None else state
    reconstruct(model, ids, state, how, frame)
    return [layer.reconstruction[how].scores for layer in state.layers]


def plain(model, how: Reconstruction, frame: ContextFrame, ids: torch.Tensor) -> list[torch.Tensor]:
    """The same from one causal pass over everything, chunk after chunk, with all attention weights at once."""
    context, columns = ids[: frame.end], []
    for start in range(frame.prefix, frame.end, how.chunk):
        stop = min(start + how.chunk, frame.end)
        request = frame.encode(how.requests[start > frame.prefix]) + (
            ids[start - how.lead : start].tolist() if start > frame.prefix else []
        )
        text = torch.cat([context, torch.tensor([*request, *frame.suffix]), ids[start:stop]])
        q, columns_of = len(text) - frame.end, []
        for layer in prefill(model, text, Needs(window=q)).layers:
            seen = torch.cat(
                [torch.arange(frame.prefix), torch.arange(start, stop), torch.arange(frame.end, len(text))]
            )
            keys = layer.keys[:, seen].repeat_interleave(len(layer.queries) // len(layer.keys), dim=0)
            logits = layer.queries.float() @ keys.float().mT * layer.scaling
            logits[..., -q:] += torch.full((q, q), float("-inf")).triu(1)
            weights = logits.softmax(dim=-1)[..., frame.prefix : frame.prefix + stop - start]
            columns_of.append(weights.amax(dim=1).unflatten(0, (len(layer.keys), -1)).amax(dim=1))
        columns.append(columns_of)
    return [torch.cat(parts, dim=1) for parts in zip(*columns, strict=True)]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_scores_are_those_of_one_plain_pass_over_prompt_request_and_chunk(family, layout):
    model = tiny_model(family, layout)
    for scores, expected in zip(again(model), plain(model, HOW, FRAME, prompt(N)), strict=True):
        assert_close(scores[:, PREFIX:END], expected, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("family", ["gemma3", "qwen2"])
def test_layers_with_a_sliding_window_begin_where_the_context_ends(family):
    model = sliding_model(family)
    state = prefill(model, prompt(N), Needs(reconstructions=frozenset([HOW])))
    found, expected = again(model, state=state), plain(model, HOW, FRAME, prompt(N))
    assert len(found) == len(expected) < len(model.model.layers)
    for scores, of_plain in zip(found, expected, strict=True):
        assert_close(scores[:, PREFIX:END], of_plain, atol=2e-5, rtol=1e-4)


def test_scores_of_the_context_are_weights_and_what_is_around_it_is_infinite():
    for scores in again(tiny_model()):
        context = scores[:, PREFIX:END]
        assert ((context > 0) & (context <= 1)).all()
        assert scores[:, :PREFIX].isposinf().all() and scores[:, END:].isposinf().all()


@pytest.mark.parametrize("n", [1, 3, 4, 5, N])
def test_a_prompt_of_little_more_than_sinks_has_little_to_score(n):
    """Of bare ids, whose prefix is the sinks and whose context goes to their end."""
    model = tiny_model()
    state = prefill(model, prompt(n), Needs())
    for scores in again(model, frame=ContextFrame(), ids=prompt(n), state=state):
        assert scores.isposinf().sum(dim=1).tolist() == [min(n, 4)] * 2
    assert state.layers[0].reconstruction[HOW].outside == min(n, 4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("tile", [1, 7 * 30, 10**9])
def test_tiles_change_nothing(tile, dtype):
    generator = torch.Generator().manual_seed(0)
    queries, keys = (torch.randn(heads, n, 16, generator=generator).to(dtype) for heads, n in ((6, 12), (2, 30)))
    whole = largest_attention(queries, keys, 0.25, 5, 18)
    assert_close(largest_attention(queries, keys, 0.25, 5, 18, tile), whole, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("group", ["max", "mean"])
def test_scores_without_torchs_log_sums_are_the_same(group, monkeypatch):
    how = replace(HOW, group=group)
    own = again(tiny_model(), how)
    monkeypatch.setattr("kvbench.prefill.second_pass.attention_in_parts", lambda *_: None)
    for scores, others in zip(own, again(tiny_model(), how), strict=True):
        assert_close(scores, others, atol=1e-5, rtol=1e-4)


def test_scores_in_bfloat16_are_close_to_those_in_float32():
    wide, narrow = (torch.stack(again(tiny_model().to(dtype))) for dtype in (torch.float32, torch.bfloat16))
    assert narrow.dtype == torch.float32
    assert (wide - narrow)[..., PREFIX:END].abs().mean() < 0.02


def test_a_prefill_in_chunks_leads_to_the_same_scores():
    model = tiny_model()
    state = ChunkedPrefill(24).run(model, prompt(N), Needs(reconstructions=frozenset([HOW])))
    for scores, chunked in zip(again(model), again(model, state=state), strict=True):
        assert_close(scores, chunked, atol=2e-5, rtol=1e-4)


def test_the_peak_is_the_whole_cache_and_one_layers_copy_with_a_chunk():
    model = tiny_model(num_layers=5)
    state = prefill(model, prompt(N), Needs())
    token = 2 * 2 * 8 * 4  # K and V, two KV heads of eight float32
    request = max(len(HOW.requests[0]), len(HOW.requests[1]) + HOW.lead) + len(FRAME.suffix)
    held = reconstruct(model, prompt(N), state, HOW, FRAME)
    assert held == (5 * N + END + request + HOW.chunk) * token
    assert all(layer.keys.shape[1] == N for layer in state.layers)


def test_each_layer_of_the_second_pass_waits_for_nothing_on_a_gpu(monkeypatch):
    monkeypatch.setattr("kvbench.ops.attention.lower_right", lambda q, length, device: None)  # a subclass of Tensor

    def counts(model):
        with FakeDevices():
            state = prefill(model, prompt(N), Needs())
        return launch_counts.counts_of(lambda: reconstruct(model, prompt(N), state, HOW, FRAME))

    counted = launch_counts.per_layer(counts)
    assert counted.waits == counted.uploads == 0, counted.names


def test_a_rotation_that_depends_on_the_length_is_refused(monkeypatch):
    model = tiny_model()
    monkeypatch.setattr(second_pass, "growth_of", lambda model: Growth("dynamic", 32, False))
    with pytest.raises(UserError, match="lengthens the text, and this model's rotation depends on the length"):
        again(model)
