"""The largest batch that fits into memory."""

import pytest
import torch

from kvbench.benchmarks import Speed
from kvbench.errors import UserError
from kvbench.evaluation.speed.largest_batch import MemoryLimit, largest
from kvbench.evaluation.speed.measure import Footprint
from kvbench.models import load as load_model
from kvbench.records import load as load_records
from kvbench.runner import request
from kvbench.runner.request import build_request
from tests.support.runs import compose
from tests.support.speed_runs import TINY, run, setting, spec, turn
from tests.support.tiny import prompt

pytestmark = pytest.mark.usefixtures("loaded_once")


@pytest.mark.parametrize("most", [0, 1, 2, 3, 7, 8, 9, 100, 1023])
def test_the_largest_batch_is_found_in_few_tries(most):
    tries = []
    assert largest(lambda batch: tries.append(batch) or batch <= most) == most
    assert len(tries) == len(set(tries)) <= 2 * (most + 1).bit_length() + 1


def test_a_batch_fits_as_long_as_weights_and_caches_do(model):
    one = Footprint(full=1000, prefilled=400, kept=400, decoded=500, peak=900)
    room = MemoryLimit(model, None)
    room.bytes = room.weights + 7 * 500 + 499
    assert room.how == "counted"
    assert room.largest(prompt(20), setting("full"), 4, one, "auto") == 7
    room.bytes = room.weights + 899  # one prompt's own peak does not fit
    assert room.largest(prompt(20), setting("full"), 4, one, "auto") == 0
    assert MemoryLimit(model, 0.5).bytes == 2**29
    assert room.weights == sum(parameter.numel() * 4 for parameter in model.parameters())


def test_on_a_gpu_a_batch_is_tried_and_what_cannot_fit_is_not(model, monkeypatch):
    from kvbench.evaluation.speed import largest_batch as module

    tried = []
    room = MemoryLimit(model, None)
    room.gpus, room.bytes = {torch.device("cuda")}, room.weights + 100 * 500
    monkeypatch.setattr(module, "attempt", lambda *a: tried.append(a[3]) or (turn(1.0) if a[3] <= 21 else None))
    one = Footprint(full=1000, prefilled=400, kept=400, decoded=500, peak=900)
    assert room.largest(prompt(20), setting("full"), 4, one, "auto") == 21
    assert max(tried) <= 100 and 22 in tried


@pytest.mark.heavy
def test_the_largest_batch_can_be_the_one_to_measure(tmp_path):
    weights = sum(p.nbytes for p in load_model(spec()).model.parameters())
    gib = (weights + 500_000) / 2**30
    folder = run(tmp_path, "benchmark.lengths=96", "benchmark.batches=largest", f"benchmark.memory_gib={gib:.9f}")
    records = load_records(folder).set_index("method")
    assert (records["sequences"] == records["largest_batch"]).all()
    for _, record in records.iterrows():
        assert record["peak_cache_bytes"] <= 500_000 < record["peak_cache_bytes"] * (1 + 1 / record["sequences"])
    assert records.loc["snapkv", "largest_batch"] > records.loc["full", "largest_batch"] > 1
    assert f"largest, {records.loc['full', 'largest_batch']}" in (folder / "table.md").read_text()


def test_the_largest_batch_is_not_run_where_it_would_fill_the_machine(monkeypatch):
    """It is counted without activations: without a limit such a run took all memory of a machine without a GPU."""
    monkeypatch.setattr(request, "free_memory", lambda: 8 * 2**30)
    largest_of = ["benchmark.batches=[1,largest]", "model.device=cpu"]
    build_request(compose(*TINY, *largest_of, "benchmark.memory_gib=7.5"))
    for allowed in ("8", "80", "null"):
        refused = (
            rf"benchmark\.memory_gib={allowed}[.0]*: .* benchmark\.memory_gib=GIB, well below the 8\.0 that are free"
        )
        with pytest.raises(UserError, match=refused):
            build_request(compose(*TINY, *largest_of, f"benchmark.memory_gib={allowed}"))
    build_request(compose(*TINY, "benchmark.memory_gib=80"))  # the largest batch is counted, and not run
    with monkeypatch.context() as patched:
        patched.setattr(type(spec()), "resolve_device", lambda _: "cuda")  # where a batch is tried
        request.check_batches(Speed(lengths=96, batches="largest", new_tokens=6), spec())


def test_a_batch_that_is_named_twice_is_measured_once():
    assert Speed(lengths=96, batches=[2, "largest", 2, "largest"], new_tokens=6).batches == [2, "largest"]


def test_what_does_not_fit_into_the_memory_allowed_is_not_run(tmp_path):
    folder = run(tmp_path, "benchmark.lengths=96", "benchmark.memory_gib=0.001")
    records = load_records(folder)
    assert not records["fits"].any() and (records["largest_batch"] == 0).all()
    assert (records["r_bytes"] > 0).all()
