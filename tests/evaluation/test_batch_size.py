"""Batches that a GPU's memory is too small for."""

from weakref import ref

import pytest
import torch

from kvbench.errors import UserError
from kvbench.evaluation import evaluate
from kvbench.evaluation.prefill_passes import SharedPass
from kvbench.records import load
from tests.support.runs import arguments, comparable, run

TOLD = "the GPU's memory is full with the caches of"


def full_above(monkeypatch, most: int, after: int = 0):
    """Decoding runs out of memory with more than `most` rows, from the answer `after` on."""
    answered, calls = evaluate.answer, []

    def answer(run, prompt, rows):
        calls.append(len(rows))
        if len(rows) > most and len(calls) > after:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 is small")
        return answered(run, prompt, rows)

    monkeypatch.setattr(evaluate, "answer", answer)
    return calls


def sizes(folder):
    frame = load(folder)
    return dict(zip(zip(frame["sample"], frame["setting"], strict=True), frame["decode_batch"], strict=True))


@pytest.mark.heavy
@pytest.mark.parametrize(
    "more, largest", [([], 9), (["distance=true"], 9), (["method=[full,snapkv,spindle,fp8_token]"], 3)], ids=str
)
def test_a_batch_that_does_not_fit_is_halved_with_the_records_of_that_size(
    more, largest, monkeypatch, tiny_folder, tmp_path, capfd
):
    """Once told, and kept for the samples that follow."""
    fits = largest // 2
    small = run(*arguments(tiny_folder, tmp_path / "small", *more, f"decode.batch={fits}"))
    capfd.readouterr()
    calls = full_above(monkeypatch, fits)
    halved = run(*arguments(tiny_folder, tmp_path / "halved", *more))
    assert comparable(halved) == comparable(small) and sizes(halved) == sizes(small)
    assert calls.count(largest) == 1 and max(sizes(halved).values()) == fits
    told = capfd.readouterr().err
    assert told.count(TOLD) == 1 and f"{TOLD} {largest} settings or answers" in told and f"decode.batch={fits}" in told


@pytest.mark.heavy
def test_it_is_halved_as_often_as_needed_and_no_record_is_made_twice(monkeypatch, tiny_folder, tmp_path):
    """The first sample fits as a whole, the second only one by one: what was made of it stays."""
    alone = run(*arguments(tiny_folder, tmp_path / "alone", "decode.batch=1"))
    calls = full_above(monkeypatch, 1, after=1)
    halved = run(*arguments(tiny_folder, tmp_path / "halved"))
    assert calls == [9, 9, 4, 2, *[1] * 18] and comparable(halved) == comparable(alone)


@pytest.mark.heavy
def test_memory_that_is_full_while_a_setting_is_compressed_beside_others_ends_no_run(
    monkeypatch, tiny_folder, tmp_path, capfd
):
    alone = run(*arguments(tiny_folder, tmp_path / "alone", "decode.batch=1", "limit=1"))
    made, held = SharedPass.compress, []

    def compress(self, method, budget):
        if sum(one() is not None for one in held) == 2:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 is small")
        found = made(self, method, budget)
        held.append(ref(found))
        return found

    monkeypatch.setattr(SharedPass, "compress", compress)
    halved = run(*arguments(tiny_folder, tmp_path / "halved", "limit=1"))
    assert comparable(halved) == comparable(alone) and set(sizes(halved).values()) == {1}
    assert capfd.readouterr().err.count(TOLD) == 1


def test_one_setting_that_does_not_fit_ends_the_run_with_torchs_hint(monkeypatch, tiny_folder, tmp_path):
    full_above(monkeypatch, 0)
    with pytest.raises(UserError, match="the GPU's memory is full while making a record: CUDA out of memory"):
        run(*arguments(tiny_folder, tmp_path, "method=full"))
