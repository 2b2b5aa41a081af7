"""Reports of GuideLLM and AIPerf: the numbers that are read are those that stand there.

data/guidellm_report.json is what GuideLLM 0.8.1 wrote of eight requests after two for warm-up, one of which the fake
server refused, without what is not read, and with times that fit its figures; data/aiperf_report.json is written by
hand after AIPerf's documentation.
"""

import json

import pytest

from kvbench.engines.serving.figures import FIGURES, Load
from kvbench.engines.serving.reports import read_report
from kvbench.errors import UserError
from tests.support.paths import DATA

GUIDELLM, AIPERF = DATA / "guidellm_report.json", DATA / "aiperf_report.json"


def test_guidellms_own_numbers_are_read():
    (measured,) = read_report(GUIDELLM)
    raw = json.loads(GUIDELLM.read_text())["benchmarks"][0]["metrics"]
    first = raw["time_to_first_token_ms"]["successful"]
    assert measured.tool == "guidellm 0.8.1" and measured.load == Load("concurrent", 2.0)
    assert (measured.answered, measured.failed, measured.unfinished) == (6, 1, 0)
    assert "500 Internal Server Error" in measured.error
    assert set(measured.figures) == set(FIGURES)
    assert measured.figures["first_token_ms_mean"] == first["mean"]
    assert measured.figures["first_token_ms_p95"] == first["percentiles"]["p95"]
    assert measured.figures["inter_token_ms_p50"] == raw["inter_token_latency_ms"]["successful"]["percentiles"]["p50"]
    assert measured.figures["per_token_ms_p99"] == raw["time_per_output_token_ms"]["successful"]["percentiles"]["p99"]
    assert measured.figures["tokens_per_s"] == raw["output_tokens_per_second"]["successful"]["mean"]
    assert measured.figures["requests_per_s"] == raw["requests_per_second"]["successful"]["mean"]
    assert measured.figures["good_requests_per_s"] == raw["request_goodput"]["successful"]["mean"]
    assert measured.figures["output_tokens"] == 16


def test_requests_of_guidellms_warm_up_are_in_no_figure():
    """Its requests have them, too: two that took seconds were a part of the mean speed of a request."""
    (measured,) = read_report(GUIDELLM)
    (load,) = json.loads(GUIDELLM.read_text())["benchmarks"]
    speeds = [request["output_tokens_per_second"] for request in load["requests"]["successful"]]
    assert len(speeds) == 9 and measured.figures["request_tokens_per_s"] == pytest.approx(sum(speeds[3:]) / 6)


def test_aiperfs_own_numbers_are_read_in_the_same_words_and_units():
    (measured,) = read_report(AIPERF)
    assert measured.load == Load("concurrent", 4.0) and (measured.answered, measured.failed) == (24, 3)
    assert measured.error == "out of blocks"
    figures = measured.figures
    assert figures["first_token_ms_p95"] == 420 and figures["request_s_p95"] == 2.4
    assert (figures["tokens_per_s"], figures["request_tokens_per_s"], figures["requests_per_s"]) == (112, 14.5, 3.5)
    assert set(FIGURES) - set(figures) == {
        *(f"per_token_ms_{one}" for one in ("mean", "p50", "p95", "p99")),
        "good_requests_per_s",
        "good_share",
        "concurrency",
    }


def test_aiperfs_speed_without_the_first_tokens_wait_is_not_the_speed_of_a_request(tmp_path):
    node = json.loads(AIPERF.read_text())
    del node["e2e_output_token_throughput"]
    (tmp_path / "older.json").write_text(json.dumps(node))
    (measured,) = read_report(tmp_path / "older.json")
    assert "output_token_throughput_per_user" in node and "request_tokens_per_s" not in measured.figures


def test_a_load_without_answers_has_no_figures(tmp_path):
    node = json.loads(GUIDELLM.read_text())
    node["benchmarks"][0]["metrics"]["request_totals"]["successful"] = 0
    (tmp_path / "none.json").write_text(json.dumps(node))
    (measured,) = read_report(tmp_path / "none.json")
    assert measured.figures == {} and measured.failed == 1


@pytest.mark.parametrize("text", ["", "{", "[]", '"text"', "{}", '{"metadata": {}}', "[" * 10**5, "\0"])
def test_what_is_no_report_is_one_line(tmp_path, text):
    (tmp_path / "odd.json").write_text(text)
    with pytest.raises(UserError, match=r"odd\.json is not a JSON report of GuideLLM \(0\.8\) or AIPerf"):
        read_report(tmp_path / "odd.json")


def test_a_report_that_lacks_something_names_it(tmp_path):
    node = json.loads(GUIDELLM.read_text())
    del node["benchmarks"][0]["metrics"]["request_totals"]
    (tmp_path / "less.json").write_text(json.dumps(node))
    with pytest.raises(UserError, match=r"less\.json is a report without 'request_totals'"):
        read_report(tmp_path / "less.json")
    with pytest.raises(UserError, match="cannot be read: No such file"):
        read_report(tmp_path / "nothing.json")
