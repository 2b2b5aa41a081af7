"""Decoding on a GPU reads several tokens at once: the same tokens, and the same ends of sequences."""

from functools import cache

import pytest
import torch

from kvbench.evaluation.decode import READ_EVERY, Choice, batched, choose, decode
from kvbench.methods import Eviction, FullKV, StreamingLLM
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


@pytest.mark.parametrize("count", [0, 1, READ_EVERY - 1, READ_EVERY, READ_EVERY + 1, 2 * READ_EVERY + 3])
def test_tokens_steps_and_bytes_are_those_of_a_read_after_every_token(count):
    several, chosen = decoded(count)
    each, _ = decoded(count, stop=frozenset({-1}))
    assert summary(several) == summary(each)
    assert chosen == [max(count, 1)] * 3


def test_a_row_whose_logits_are_not_finite_ends_there_and_leaves_at_the_next_read():
    several, chosen = decoded(2 * READ_EVERY, breaks=True)
    each, _ = decoded(2 * READ_EVERY, stop=frozenset({-1}), breaks=True)
    assert [(x.tokens, x.not_finite) for x in several] == [(x.tokens, x.not_finite) for x in each]
    assert several[BROKEN].not_finite == len(several[BROKEN].tokens) == FIRST
    assert chosen[BROKEN] == READ_EVERY  # the passes that were made are counted as such
    assert several[BROKEN].steps == several[BROKEN].decode_bytes.passes == READ_EVERY - 1
    assert [len(x.tokens) for x in several] == [2 * READ_EVERY, FIRST, 2 * READ_EVERY]


def test_a_sequence_that_may_end_gets_no_pass_after_its_end():
    whole, _ = decoded(READ_EVERY)
    stop = whole[0].tokens[2]
    expected = [row.tokens[: row.tokens.index(stop)] if stop in row.tokens else row.tokens for row in whole]
    stopped, chosen = decoded(READ_EVERY, stop=frozenset({stop}))
    assert [row.tokens for row in stopped] == expected
    assert chosen == [min(len(tokens) + 1, READ_EVERY) for tokens in expected]
    ended, chosen = decoded(READ_EVERY, until=lambda tokens: len(tokens) == 2)
    assert [row.tokens for row in ended] == [row.tokens[:2] for row in whole]
    assert chosen == [2, 2, 2]
