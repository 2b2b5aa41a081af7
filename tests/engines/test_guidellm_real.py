"""The real GuideLLM: `make engine-guidellm`, then `make test-engines`. It loads a server of this process."""

import json

import pytest

from kvbench.engines.serving.guidellm import arrivals, guidellm
from kvbench.errors import UserError
from kvbench.records import load
from tests.engines.test_serving import command
from tests.support.fake_engine import FakeEngine
from tests.support.needs import need
from tests.support.runs import run

pytestmark = [pytest.mark.engines, pytest.mark.heavy]


@pytest.fixture(autouse=True)
def installed():
    try:
        guidellm()
    except UserError as error:
        need("guidellm", str(error))


def test_records_have_what_it_wrote_of_the_requests_that_the_server_got(tiny_folder, tmp_path):
    engine = FakeEngine(lambda number, payload: "error" if payload.get("stream") and number % 8 == 7 else "well")
    few = ["benchmark.rates=[2]", "benchmark.requests=8", "benchmark.repeats=1", "benchmark.token_ms=1000"]
    with engine.running() as url:
        folder = run(*command(tiny_folder, tmp_path, url, *few))
    (record,) = (row for _, row in load(folder).iterrows())
    sent = [one for one in engine.asked if one.get("stream")]
    assert len(sent) == 8 and len({one["prompt"] for one in sent}) == 8
    assert {one["max_tokens"] for one in sent} == {4} and all(one["ignore_eos"] for one in sent)
    (name,) = record.reports
    metrics = json.loads((folder / "guidellm" / name).read_text())["benchmarks"][0]["metrics"]
    assert record.figures["first_token_ms_p50"] == metrics["time_to_first_token_ms"]["successful"]["percentiles"]["p50"]
    assert record.figures["tokens_per_s"] == metrics["output_tokens_per_second"]["successful"]["mean"]
    assert record.answered == metrics["request_totals"]["successful"] and record.answered + record.failed == 8
    assert record.figures["output_tokens"] == 4
    assert record.failed == 1 and record.figures["good_share"] == record.answered / (record.answered + 1)


@pytest.mark.parametrize("profile", ["throughput", "synchronous"])
def test_profiles_without_rates(profile, tiny_folder, tmp_path):
    few = ["benchmark.rates=null", "benchmark.requests=3", "benchmark.repeats=1", f"benchmark.profile={profile}"]
    with FakeEngine().running() as url:
        (record,) = (row for _, row in load(run(*command(tiny_folder, tmp_path, url, *few))).iterrows())
    assert record["sample"] == profile and record.answered == 3


def test_poisson_arrivals(tiny_folder, tmp_path):
    few = ["benchmark.rates=[20]", "benchmark.requests=6", "benchmark.repeats=1", "benchmark.profile=poisson"]
    with FakeEngine().running() as url:
        folder = run(*command(tiny_folder, tmp_path, url, *few))
    (record,) = (row for _, row in load(folder).iterrows())
    assert record["sample"] == "poisson-20" and record.answered == 6
    (name,) = record.reports
    requests = json.loads((folder / "guidellm" / name).read_text())["benchmarks"][0]["requests"]["successful"]
    at = sorted(request["info"]["timings"]["targeted_start"] for request in requests)
    meant = arrivals(20, 6, 0)
    assert [time - at[0] for time in at] == pytest.approx([time - meant[0] for time in meant], abs=1e-4)
