"""Bytes and passes of conversations whose own answers stay in the caches: sums over all turns up to the record's."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from kvbench.benchmarks import Sample, Turn
from kvbench.cache.decode_bytes import DecodeFigures
from kvbench.evaluation import turns
from kvbench.evaluation.prefill_passes import SharedPass
from kvbench.evaluation.prompts import Prompt
from kvbench.evaluation.record import Row, decode_figures
from kvbench.evaluation.recorded_steps import Recording
from kvbench.prefill import FullPrefill
from kvbench.runner.verify.check_decoding import decoding_fits
from kvbench.runner.verify.verdict import Verdict
from tests.evaluation.test_turns import conversation
from tests.support.every_method import HEAD_DIM, LAYERS, setting
from tests.support.given import made
from tests.support.replay import Recorded
from tests.support.tiny import prompt, tiny_model

N, QUESTION, MESSAGES, LIMITS = 120, 3, (9, 25), (8, 7, 6)
# An answer's last token is read with the next message: tokens read up to each turn's end.
READ = [10, 26, 57]


@pytest.fixture(params=["launched", "recorded"])
def figures(request, monkeypatch):
    """The figures of each turn of a conversation under a preset, with steps that Python launches or repeats."""
    recording = Recording(lambda work: Recorded(work).replay) if request.param == "recorded" else None
    monkeypatch.setattr(turns, "recording_of", lambda engine, model: recording)
    model = tiny_model(num_layers=LAYERS, head_dim=HEAD_DIM)
    loaded = SimpleNamespace(model=model, stop_tokens=frozenset(), newline=None)
    run = SimpleNamespace(decode_engine="auto", loaded=loaded)
    later = tuple(Turn("", "", limit) for limit in LIMITS[:2])
    sample = Sample("c", "", (), LIMITS[2], turns=later, own_answers=True)
    messages = tuple(prompt(length, seed=length) for length in MESSAGES)
    asked = [
        Prompt(replace(sample, turns=later[:k]), prompt(N), prompt(QUESTION), messages[:k]) for k in reversed(range(3))
    ]

    def of(name: str) -> list[DecodeFigures]:
        method, budget = setting(name).method, setting(name).budget_at(N, LAYERS)
        compressed = SharedPass(model, prompt(N), FullPrefill(), method.needs).compress(method, budget)
        row = Row(setting(name), asked[0], compressed, compressed.caches)
        return [
            decode_figures(compressed, row.caches, answer.generation.decode_bytes, N)
            for _, answer in turns.converse(run, row, asked)
        ]

    return of


def test_every_turns_passes_count(figures):
    for turn, read in zip(full := figures("full"), READ, strict=True):
        assert turn.decode_tokens == read
        assert turn.r_mean == turn.r_read == turn.r_decode_peak == turn.r_end == 1
    assert [turn.decode_bytes_end for turn in full] == [turn.decode_bytes_peak for turn in full]
    assert len({turn.decode_byte_steps for turn in full}) == 3
    # its heads keep different numbers of tokens, but as many in all
    assert figures("adakv") == figures("snapkv")


@pytest.mark.parametrize("name", ["full", "snapkv", "snapkv_decode"])  # the last takes no blocks
def test_verify_takes_a_later_turns_record_for_what_it_is_and_finds_an_edited_one(tmp_path, tiny, name):
    records = made(tmp_path, tiny, conversation(own_answers=True), "visible", [setting(name)])
    assert decoding(*records.values()) is Verdict.PLAUSIBLE
    last = records["c:3", setting(name).label]
    assert last["question_tokens"] > 0
    for field in ("decode_byte_steps", "decode_bytes_mean", "decode_bytes_read", "r_mean", "r_read", "r_end"):
        for factor in (0, 0.99, 1.01):  # half or twice the passes, each over other tokens, can be possible too
            edited = last | {field: type(last[field])(last[field] * factor)}
            assert decoding(edited) is Verdict.WRONG, (field, factor)


def decoding(*records: dict) -> Verdict:
    return decoding_fits(SimpleNamespace(records=records)).verdict
