"""Decoding on a GPU reads several tokens at once: the same tokens, and the same ends of sequences."""

from functools import cache

import pytest
import torch

from kvbench.evaluation.decode import READ_EVERY, Choice, batched, choose, decode
from kvbench.methods import Eviction, FullKV, Quest, StreamingLLM
from kvbench.prefill import Needs, prefill
from tests.support.fake_devices import FakeDevices, place
from tests.support.tiny import prompt, tiny_model

N, BROKEN, FIRST = 60, 1, 3  # a row's logits are not finite from its token FIRST on
METHODS = [(FullKV(), N), (Eviction(), 40), (StreamingLLM(), 20)]


@cache
def model():
    return place(tiny_model(), 1)


def decoded(count: int, stop=frozenset(), breaks: bool = False, until=None):
    """What three rows decode, and how many tokens of each were chosen."""
    chosen = []

    def chooser(logits, rows) -> Choice:
        choice = choose(logits)
        chosen.append(list(rows))
        if breaks and len(chosen) > FIRST and BROKEN in rows:
            choice.finite[rows.index(BROKEN)] = False
        return choice

    with FakeDevices(), torch.inference_mode():
        state = prefill(model(), prompt(N), Needs(window=32))
        caches = [method.compress(state, budget) for method, budget in METHODS]
        out = decode(model(), batched(caches), state.logits.expand(3, -1), count, stop, chooser, until=until)
    return out, [sum(row in rows for rows in chosen) for row in range(3)]


def summary(outputs) -> list:
    return [(x.tokens, x.close_call, x.not_finite, x.steps, x.decode_bytes) for x in outputs]


@pytest.fixture
def read_each(monkeypatch):
    """`decoded`, with a read after every token."""

    def run(*args, **options):
        with monkeypatch.context() as patch:
            patch.setattr("kvbench.evaluation.decode.READ_EVERY", 1)
            return decoded(*args, **options)

    return run


@pytest.mark.parametrize("count", [0, 1, READ_EVERY - 1, READ_EVERY, READ_EVERY + 1, 2 * READ_EVERY + 3])
def test_tokens_steps_and_bytes_are_those_of_a_read_after_every_token(count, read_each):
    (several, chosen), (each, _) = decoded(count), read_each(count)
    assert summary(several) == summary(each)
    assert chosen == [max(count, 1)] * 3


def test_a_row_whose_logits_are_not_finite_ends_there_and_leaves_at_the_next_read(read_each):
    """Its later passes are taken back."""
    (several, chosen), (each, _) = (run(2 * READ_EVERY, breaks=True) for run in (decoded, read_each))
    assert summary(several) == summary(each)
    assert several[BROKEN].not_finite == len(several[BROKEN].tokens) == several[BROKEN].steps == FIRST
    assert chosen[BROKEN] == READ_EVERY
    assert [len(x.tokens) for x in several] == [2 * READ_EVERY, FIRST, 2 * READ_EVERY]


def test_passes_after_the_end_of_a_sequence_leave_no_trace(read_each):
    whole, _ = decoded(READ_EVERY)
    stop = whole[0].tokens[2]
    expected = [row.tokens[: row.tokens.index(stop)] if stop in row.tokens else row.tokens for row in whole]
    (stopped, chosen), (each, _) = (run(READ_EVERY, stop=frozenset({stop})) for run in (decoded, read_each))
    assert summary(stopped) == summary(each) and [row.tokens for row in stopped] == expected
    assert chosen == [READ_EVERY] * 3
    ended, chosen = decoded(READ_EVERY, until=lambda tokens: len(tokens) == 2)
    assert [row.tokens for row in ended] == [row.tokens[:2] for row in whole]
    assert [(row.steps, row.decode_bytes.passes) for row in ended] == [(1, 1)] * 3


def test_a_cache_that_takes_nothing_back_is_read_after_every_token_that_could_end_it():
    with FakeDevices(), torch.inference_mode():
        state = prefill(model(), prompt(N), Needs(column_sums=True))
        chosen = []
        chooser = lambda logits, rows: chosen.append(rows) or choose(logits)  # noqa: E731
        quest = [Quest(page=8).compress(state, 40)]
        ended = decode(model(), batched(quest), state.logits[None], READ_EVERY, frozenset(), chooser, until=len)
    assert len(chosen) == len(ended[0].tokens) == 1
