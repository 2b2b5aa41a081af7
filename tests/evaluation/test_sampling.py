"""Drawn answers: the right distribution, decided by the seed alone, whatever decodes beside them."""

from dataclasses import replace

import pytest
import torch
from transformers import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from kvbench.benchmarks import Sample, Sampling
from kvbench.benchmarks.base import data_hash
from kvbench.errors import UserError
from kvbench.evaluation.check_samples import check_turns
from kvbench.evaluation.evaluate import evaluate
from kvbench.evaluation.record import Run
from kvbench.evaluation.sampling import Sampler, nucleus
from kvbench.evaluation.settings import Setting
from kvbench.methods import FullKV, Kivi
from kvbench.records.store import Store
from tests.support.config import method
from tests.support.given import Given

HOT = Sampling(seed=0, temperature=1.5, top_p=0.95)
TEXT = "The harbour lies in the north. The market opens at eight, the ferry leaves at nine and returns at noon. "
SETTINGS = [
    Setting("full", method("full"), '{"f": 1}'),
    Setting("snapkv", method("snapkv"), '{"s": 1}', ratio=0.5),
    Setting(
        "kivi", FullKV(storage=Kivi(group=8, residual=8)), '{"k": 1}'
    ),  # what it codes while decoding depends on rounding: never in a batch
]


def logits(rows=3, size=50, seed=0, dtype=torch.float32) -> torch.Tensor:
    return (3 * torch.randn(rows, size, generator=torch.Generator().manual_seed(seed))).to(dtype)


def draws(count: int, **how) -> Sampler:
    return Sampler([Sampling(seed=seed, **how) for seed in range(count)])


# --- distribution


@pytest.mark.parametrize("temperature", [0.6, 1.0, 1.7])
@pytest.mark.parametrize("top_k", [None, 1, 7, 1000])
@pytest.mark.parametrize("top_p", [1e-9, 0.5, 0.95, 1.0])
def test_probabilities_are_those_of_transformers(temperature, top_k, top_p):
    given = logits()
    expected = TemperatureLogitsWarper(temperature)(None, given)
    if top_k is not None:
        expected = TopKLogitsWarper(top_k)(None, expected)
    expected = TopPLogitsWarper(top_p)(None, expected).softmax(dim=-1)
    found, _ = nucleus(given / temperature, top_k, top_p, torch.zeros(3, 1))
    assert torch.equal(found > 0, expected > 0)
    assert torch.allclose((found / found.sum(dim=-1, keepdim=True)).float(), expected, atol=1e-6)


def test_frequencies_are_the_probabilities():
    row = logits(1, size=6)
    count = 4000
    tokens, _, _ = draws(count, temperature=0.8)(row.expand(count, -1), range(count))
    found = torch.bincount(tokens, minlength=6) / count
    assert torch.allclose(found, (row[0] / 0.8).softmax(-1), atol=4 * 0.5 / count**0.5)


def test_a_token_outside_of_the_nucleus_is_never_drawn():
    tokens = draws(500, top_k=3)(logits(1).expand(500, -1), range(500)).tokens
    assert set(tokens.tolist()) == set(logits(1)[0].topk(3).indices.tolist())


# --- seeds


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_sequence_draws_the_same_alone_and_beside_others(dtype):
    steps = [logits(4, seed=step, dtype=dtype) for step in range(20)]
    together, alone = draws(4, temperature=2.0), draws(4, temperature=2.0)
    for step in steps:
        tokens = together(step, range(4))[0]
        assert [alone(step[i : i + 1], [i])[0][0] for i in (2, 0, 3, 1)] == [tokens[i] for i in (2, 0, 3, 1)]


def test_a_sequence_that_leaves_a_batch_leaves_the_others_as_they_are():
    whole, fewer = draws(3, temperature=2.0), draws(3, temperature=2.0)
    expected = [whole(logits(seed=step), range(3)).tokens.tolist() for step in range(10)]
    found = [fewer(logits(seed=step)[[0, 2]], [0, 2]).tokens.tolist() for step in range(10)]
    assert [[row[0], row[2]] for row in expected] == found


def test_other_seeds_draw_other_tokens():
    found = [draws(8, temperature=2.0)(logits(1).expand(8, -1), range(8)).tokens.tolist() for _ in range(2)]
    assert found[0] == found[1]
    assert len(set(found[0])) > 3


def test_sequences_with_other_temperatures_are_not_drawn_together():
    with pytest.raises(ValueError, match="only in their seeds"):
        Sampler([HOT, replace(HOT, temperature=0.5)])


# --- what rounding could change


def test_a_draw_that_rounding_could_turn_is_a_close_call():
    row = torch.tensor([[1.0, 1.0, 1.0, 1.0]])
    sampler = draws(1)
    for drawn, close in ((0.375, False), (0.25 - 1e-7, True), (0.25 + 1e-7, True), (0.99, False), (1e-9, False)):
        sampler.streams[0] = type("Stream", (), {"random": staticmethod(lambda drawn=drawn: drawn)})
        choice = sampler(row, [0])
        assert [x.tolist() for x in choice] == [[int(drawn * 4)], [close], [True]]


def test_a_nucleus_whose_edge_rounding_could_move_is_a_close_call():
    row, noise = torch.tensor([[3.0, 2.0, 1.0, 0.0]]).double(), torch.full((1, 1), 1e-3).double()
    edge = row.softmax(-1).cumsum(-1)[0, 1].item()
    assert [nucleus(row, None, top_p, noise)[1].item() for top_p in (edge - 1e-5, edge + 1e-5, 0.8)] == [
        True,
        True,
        False,
    ]
    tied = torch.tensor([[3.0, 2.0, 2.0 - 1e-4, 0.0]]).double()
    assert [nucleus(tied, top_k, 1.0, noise)[1].item() for top_k in (1, 2, 3)] == [False, True, False]


def test_logits_that_are_not_finite_are_reported():
    broken = logits(2)
    broken[1, 3] = float("nan")
    tokens, _, finite = draws(2)(broken, range(2))
    assert finite.tolist() == [True, False]
    assert tokens[0] == draws(2)(logits(2), range(2)).tokens[0]


# --- runs


def repeats(count=3, **changes) -> list[Sample]:
    sample = Sample("p", TEXT, ("x",), 9, context_id="p", meta={"task": "t"})
    return [replace(sample, id=f"p#{k}", sampling=replace(HOT, seed=k), **changes) for k in range(count)]


def made(folder, loaded, samples, batch="auto", settings=SETTINGS):
    run = Run("run", "r", loaded, Given(samples), settings, batch=batch)
    with Store(folder) as store:
        return {(record["sample"], record["setting"]): record for record in evaluate(run, samples, store)}


def test_answers_are_the_same_however_they_are_batched(tmp_path, tiny):
    runs = {batch: made(tmp_path / batch, tiny, repeats(), batch) for batch in ("1", "auto", "4", "100")}
    sizes = {batch: sorted({record["decode_batch"] for record in found.values()}) for batch, found in runs.items()}
    assert sizes == {"1": [1], "auto": [1, 2], "4": [1, 2, 4], "100": [1, 6]}
    for found in runs.values():
        assert len(found) == 9
        for key, record in found.items():
            assert record["tokens"] == runs["1"][key]["tokens"], key
            assert record["sampling"] == {"seed": int(key[0][-1]), "temperature": 1.5, "top_p": 0.95, "top_k": None}
    assert len({tuple(found["tokens"]) for found in runs["1"].values()}) > 3


def test_one_repeat_alone_is_that_of_all(tmp_path, tiny):
    whole, alone = (
        made(tmp_path / "a", tiny, repeats()),
        made(tmp_path / "b", tiny, repeats()[2:], settings=SETTINGS[1:2]),
    )
    assert alone["p#2", "snapkv 0.5"]["tokens"] == whole["p#2", "snapkv 0.5"]["tokens"]


def test_a_cold_draw_is_the_likeliest_token(tmp_path, tiny):
    cold = [replace(repeats()[0], sampling=Sampling(seed=5, temperature=1e-4))]
    drawn = made(tmp_path / "cold", tiny, cold)
    likeliest = made(tmp_path / "greedy", tiny, [replace(cold[0], sampling=None)])
    for key, record in likeliest.items():
        assert drawn[key]["tokens"] == record["tokens"]
        assert "sampling" not in record


def test_questions_that_differ_are_not_read_together(tmp_path, tiny):
    samples = [
        replace(sample, prompt=TEXT + ask, question=ask)
        for sample, ask in zip(repeats(2), ("Why?", "When?"), strict=True)
    ]
    run = Run("run", "r", tiny, Given(samples), SETTINGS[:1], question="hidden", batch="100")
    with Store(tmp_path) as store:
        assert [record["decode_batch"] for record in evaluate(run, samples, store)] == [1, 1]


# --- what is not defined, and what stays


def test_what_is_not_defined_for_drawn_answers_is_refused():
    with pytest.raises(UserError, match="answers to these samples are sampled"):
        check_turns(repeats(), SETTINGS, True)
    with pytest.raises(ValueError, match="cannot be sampled"):
        repeats(own_answers=True)


def test_seeds_are_part_of_the_samples_hash():
    assert (
        len({data_hash(repeats(1)), data_hash(repeats(2)[1:]), data_hash([replace(repeats(1)[0], sampling=None)])}) == 3
    )
