"""benchmark=serve: loads of a server become records, with a tool in GuideLLM's place that sends the same requests."""

import json
import os
import sys
from itertools import pairwise
from pathlib import Path
from statistics import fmean, pstdev

import pytest

from kvbench.engines.serving.guidellm import ENVIRONMENT, GuideLLM, arrivals
from kvbench.errors import Incomplete, UserError
from kvbench.records import load
from kvbench.report.tables.serve_table import notes, serving
from kvbench.runner.commands import COMMANDS
from kvbench.runner.kinds import OfServing
from kvbench.runner.verify.checks import verify
from kvbench.utils.hashing import file_hash
from tests.support import fake_guidellm
from tests.support.fake_engine import MODEL, FakeEngine
from tests.support.runs import reported, run


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """The tool in the current folder; call it with another mode of fake_guidellm.py."""
    monkeypatch.chdir(tmp_path)
    python = tmp_path / ENVIRONMENT / "bin" / "python"
    python.parent.mkdir(parents=True)

    def mode(name: str) -> None:
        python.write_text(f'#!/bin/sh\nexec {sys.executable} {fake_guidellm.__file__} {name} "$@"\n')
        os.chmod(python, 0o755)

    mode("well")
    return mode


def command(tiny_folder: Path, out: Path, url: str, *more: str) -> list[str]:
    """Two loads of six requests, one of them for warm-up, twice."""
    model = [f"model.path={tiny_folder}", "model.shape=null", "model.max_length=4096"]
    of = ["benchmark.of.lengths=[330]", "benchmark.of.depths=[0,50]", "benchmark.new_tokens=4"]
    few = ["benchmark.requests=5", "benchmark.warmup=1", "benchmark.repeats=2", "benchmark.rates=[1,2]"]
    engine = ["engine=openai", f"engine.url={url}", f"engine.served_model={MODEL}", "engine.flags=f16"]
    return [*model, "benchmark=serve", *of, *few, *engine, f"output_dir={out}", *more]


def test_a_record_for_each_load_has_the_tools_own_numbers(tiny_folder, tmp_path, installed):
    engine = FakeEngine()
    with engine.running() as url:
        folder = reported(*command(tiny_folder, tmp_path / "runs", url, "benchmark.first_token_ms=50"))
    records = load(folder)
    assert records["kind"].tolist() == ["serve"] * 2 and records["sample"].tolist() == ["concurrent-1", "concurrent-2"]
    assert records["failed"].tolist() == [2, 2] and records["answered"].tolist() == [12, 12]
    raw = json.loads(fake_guidellm.REPORT.read_text())["benchmarks"][0]["metrics"]
    for _, record in records.iterrows():
        first = raw["time_to_first_token_ms"]["successful"]["percentiles"]["p95"]
        assert record.repeats["first_token_ms_p95"] == [first, first] and record.figures["first_token_ms_p95"] == first
        low, high = record.intervals["tokens_per_s"]
        assert 0 <= low <= record.figures["tokens_per_s"] <= high
        assert all(file_hash(folder / "guidellm" / name) == sha256 for name, sha256 in record.reports.items())
        assert len(record.reports) == 2 and record.limits == {"first_token_ms": 50}
    assert next(check.verdict for check in verify(folder) if check.name == "loads") == "proven"
    assert records["capacity"].tolist() == [{}, {}]  # the fake server's metrics have no gauges
    table = (folder / "table.md").read_text()
    assert "· 1 at once |" in table and "· 2 at once |" in table
    assert "tokens a second still grow at 2 at once" in table and "within 50 ms for the first token" in table


def test_requests_that_a_load_had_no_time_for_are_told(tiny_folder, tmp_path, installed):
    """The figures are of the others alone, and nothing said so."""
    with FakeEngine().running() as url:
        records = load(run(*command(tiny_folder, tmp_path, url, "benchmark.seconds=9")))
    assert not any("never sent" in note for note in notes(records, serving(records)))
    records.loc[0, ["answered", "failed", "unfinished"]] = (4, 0, 1)
    told = [note for note in notes(records, serving(records)) if "never sent" in note]
    name = records["setting"][0]
    assert told == [f"{name}, 1 at once: 5 of 10 requests were never sent within benchmark.seconds=9"]


def test_every_prompt_is_fresh_and_asks_for_as_many_tokens(tiny_folder, tmp_path, installed):
    engine = FakeEngine()
    with engine.running() as url:
        run(*command(tiny_folder, tmp_path / "runs", url))
        sent = engine.asked[-24:]  # the others found out what the server can do
        assert len({one["prompt"] for one in sent}) == 24
        assert {(one["max_tokens"], one["temperature"], one["top_p"]) for one in sent} == {(4, 0, 1)}
        assert all("return_token_ids" not in one for one in sent)
        ours = [one["User-Agent"] == "kvbench" for one in engine.headers[-24:]]
        assert ours == [True, *[False] * 5] * 4, "the tool is given what counts, and the server is warm before"
        engine.asked.clear()
        run(*command(tiny_folder, tmp_path / "again", url, "benchmark.fresh=false"))
        assert len({one["prompt"] for one in engine.asked[-24:]}) == 2


def test_a_server_that_takes_messages_gets_them_and_the_key(tiny_folder, tmp_path, installed, monkeypatch):
    engine = FakeEngine()
    engine.key = "sk-secret"
    monkeypatch.setenv("THE_KEY", "sk-secret")
    with engine.running() as url:
        folder = run(*command(tiny_folder, tmp_path / "runs", url, "engine.mode=chat", "engine.key_env=THE_KEY"))
    assert engine.asked[-1]["messages"][0]["role"] == "user" and len(load(folder)) == 2
    assert engine.headers[-1]["Authorization"] == "Bearer sk-secret"
    texts = [path.read_text(errors="replace") for path in folder.rglob("*") if path.is_file()]
    assert not any("sk-secret" in text for text in texts)
    assert any("no more for [key]" in text for text in texts)


def test_prompts_that_a_server_does_not_count_have_kvbenchs_count(tiny_folder, tmp_path, installed):
    installed("uncounted")
    with FakeEngine().running() as url:
        (first, second) = load(run(*command(tiny_folder, tmp_path, url)))[["prompt_tokens", "figures"]].values.tolist()
    assert 200 < first[0] < 240 and 200 < second[0] < 240  # needles of 203 tokens, and a number before each
    assert "prompt_tokens" not in first[1] and "output_tokens" in first[1]


def test_random_arrivals_are_as_many_a_second_and_others_in_each_repeat():
    pauses = [after - before for before, after in pairwise([0.0, *arrivals(5, 4000, 0)])]
    assert abs(fmean(pauses) - 1 / 5) < 0.01 and abs(pstdev(pauses) - 1 / 5) < 0.01, "as exponential pauses have it"
    assert len(set(pauses)) == len(pauses)
    assert arrivals(5, 9, 0) == arrivals(5, 4000, 0)[:9] != arrivals(5, 9, 1)


def test_the_tool_is_given_the_time_of_each_random_arrival(tiny_folder, tmp_path, installed, monkeypatch):
    sent, spec = [], {}

    def kept(tool: GuideLLM, folder: Path, report: Path) -> None:
        spec.update(json.loads((folder / "scenario.json").read_text())["spec"])
        sent.append([json.loads(line)["at"] for line in (folder / "prompts.jsonl").read_text().splitlines()])
        original(tool, folder, report)

    original = GuideLLM.run
    monkeypatch.setattr(GuideLLM, "run", kept)
    poisson = ["benchmark.profile=poisson", "benchmark.rates=[40]"]
    with FakeEngine().running() as url:
        (record,) = (row for _, row in load(run(*command(tiny_folder, tmp_path, url, *poisson))).iterrows())
    assert sent == [arrivals(40, 5, 0), arrivals(40, 5, 1)] and record["sample"] == "poisson-40"
    assert spec["profile"] == {"kind": "replay", "schedule_turn": "timestamp"}
    assert spec["data_column_mapper"]["column_mappings"]["relative_timestamp_column"] == "at"


@pytest.mark.parametrize("profile", ["throughput", "synchronous"])
def test_profiles_without_rates(profile, tiny_folder, tmp_path, installed):
    without = ["benchmark.rates=null", f"benchmark.profile={profile}"]
    with FakeEngine().running() as url:
        assert load(run(*command(tiny_folder, tmp_path, url, *without)))["sample"].tolist() == [profile]


@pytest.mark.parametrize("name", OfServing.goes_on)
def test_commands_that_go_on_from_a_run_take_it(name, tiny_folder, tmp_path, installed):
    with FakeEngine().running() as url:
        folder = run(*command(tiny_folder, tmp_path, url))
    assert COMMANDS[name].run([str(folder)]) == 0


@pytest.mark.parametrize(
    "mode, words",
    [
        ("fails", "GuideLLM ended with exit code 1: ValueError: no such profile"),
        ("unanswered", "none of 7 requests was answered: HTTPStatusError"),
    ],
)
def test_a_load_that_is_not_measured_has_no_record_and_the_next_command_makes_it(
    tiny_folder, tmp_path, installed, mode, words
):
    installed(mode)
    with FakeEngine().running() as url:
        with pytest.raises(Incomplete, match=f"2 records could not be made.*{words}"):
            run(*command(tiny_folder, tmp_path / "runs", url))
        installed("well")
        folder = run(*command(tiny_folder, tmp_path / "runs", url))
    assert len(load(folder)) == 2


@pytest.mark.parametrize(
    "more, words",
    [
        (["benchmark.profile=sweep"], "unknown benchmark.profile 'sweep'. Allowed: concurrent, constant, poisson"),
        (["benchmark.profile=throughput"], "benchmark.profile=throughput has no rates: benchmark.rates=null"),
        (["benchmark.rates=null"], "benchmark.profile=concurrent needs benchmark.rates="),
        (["benchmark.rates=[1.5]"], r"benchmark.rates has 1.5: .* whole numbers"),
        (["benchmark.rates=[2,2]"], r"benchmark.rates=\[2, 2\] has a rate twice"),
        (["benchmark.rates=[0]"], "benchmark.rates"),
        (["benchmark.requests=0"], "benchmark.requests=0 must be an integer of at least 1"),
        (
            ["engine=llama_cpp", "~engine.url", "~engine.served_model", "~engine.flags"],
            "kvbench starts no server of it",
        ),
        (["engine.url=http://127.0.0.1:9/api"], "does not end in /v1"),
        (["engine.url=http://127.0.0.1:9/v1"], "no server with OpenAI's protocol answers there"),
    ],
)
def test_mistakes_are_one_line(tiny_folder, tmp_path, installed, more, words):
    given = command(tiny_folder, tmp_path / "runs", "http://127.0.0.1:9/v1")
    keys = {one.partition("=")[0] for one in more}
    dropped = {one.removeprefix("~") for one in keys}
    given = [one for one in given if one.partition("=")[0] not in dropped]
    with pytest.raises(UserError, match=words):
        run(*given, *(one for one in more if not one.startswith("~")))
    assert not (tmp_path / "runs").exists()


def test_without_the_tool_its_target_is_named(tiny_folder, tmp_path, monkeypatch):
    monkeypatch.setattr("kvbench.engines.serving.guidellm.in_environment", lambda name: None)
    with pytest.raises(UserError, match=r"not installed: make engine-guidellm.*pip install guidellm==0\.8\.1"):
        run(*command(tiny_folder, tmp_path, "http://127.0.0.1:9/v1"))


def test_methods_have_no_server(tiny_folder, tmp_path):
    with pytest.raises(UserError, match="benchmark=serve loads servers: engine=openai"):
        run(f"model.path={tiny_folder}", "model.shape=null", "benchmark=serve", f"output_dir={tmp_path}")
