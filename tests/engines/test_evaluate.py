"""Whole runs against a server that misbehaves: nothing is lost, nothing is made up, and methods stand beside."""

import json

import pytest

from kvbench.errors import Incomplete, UserError
from kvbench.records import load
from kvbench.report.page.page import page
from tests.support.fake_engine import MODEL, FakeEngine
from tests.support.runs import arguments, comparable, reported, run

VARYING = {"request_seconds", "top"}


def command(tiny_folder, out, url: str, *more: str) -> list[str]:
    """Three samples under one engine."""
    first = arguments(tiny_folder, out)[:-3]
    return [*first, f"output_dir={out}", "engine=openai", f"engine.url={url}", f"engine.served_model={MODEL}", *more]


def outcome(folder) -> list[dict]:
    return [{k: v for k, v in row.items() if k not in VARYING} for row in comparable(folder)]


def asked_by(engine: FakeEngine, *arguments, run=run) -> tuple:
    """The folder of a run against the engine, and the error that it ended with."""
    with engine.running() as url:
        try:
            return run(*command(*arguments[:2], url, "engine.label=one", *arguments[2:])), None
        except UserError as error:
            return next(path for path in arguments[1].iterdir() if (path / "records.jsonl").exists()), error


@pytest.fixture(scope="module")
def calm(tiny_folder, tmp_path_factory):
    """A run against a server that behaves well."""
    folder, error = asked_by(FakeEngine(), tiny_folder, tmp_path_factory.mktemp("calm"))
    assert error is None
    return folder


def test_records_have_the_prompts_and_ends_of_methods(calm, undisturbed):
    ours, methods = load(calm), load(undisturbed)
    assert ours["kind"].tolist() == ["engine"] * 3 and ours["setting"].tolist() == ["one"] * 3
    full = methods[methods["method"] == "full"].set_index("sample")
    assert ours.set_index("sample")["prompt_tokens"].to_dict() == full["prompt_tokens"].to_dict()
    assert ours["tokens"].map(len).eq(6).all() and ours["prediction"].map(bool).all()
    told = json.loads(ours["parameters"][0])
    assert told["version"] == "0.32.0" and told["told"]["cache_dtype"] == "fp8" and told["engine"] == "openai"
    assert [one is not None and one["equal"] for one in ours.sort_values("sample")["repeated"]].count(True) == 3
    assert "url" not in told and "127.0.0.1" not in ours["key"][0]


def test_engines_stand_in_the_folder_table_and_page_of_methods(tiny_folder, tmp_path):
    folder = run(*arguments(tiny_folder, tmp_path, "method=[full,snapkv]", "ratio=0.2"))
    same, error = asked_by(FakeEngine(), tiny_folder, tmp_path, run=reported)
    assert error is None and same == folder
    table = (folder / "table.md").read_text().partition("difference from")[0]
    rows = [line.split("|")[1].strip() for line in table.splitlines() if line.startswith("|")]
    assert rows[2:] == ["FullKV", "SnapKV", "one"]
    assert " counted |" in table and "equal answers to samples that were asked twice: one 3 of 3" in table
    assert '"label":"one"' in page([folder])


def test_a_page_of_engines_alone(calm):
    assert '"label":"one"' in page([calm])


@pytest.mark.heavy
@pytest.mark.parametrize("kind", ["busy", "error", "truncated", "reset", "html"])
def test_a_fault_that_passes_changes_no_record(kind, calm, tiny_folder, tmp_path):
    engine = FakeEngine(lambda number, payload: kind if number % 2 else "well")
    folder, error = asked_by(engine, tiny_folder, tmp_path, "engine.concurrency=1")
    assert error is None and folder.name == calm.name
    expected = [{**row, "concurrency": 1} for row in outcome(calm)]
    assert outcome(folder) == expected


FAULTS = {
    "other count": "the engine counts 7 tokens in the prompt, and kvbench ",
    "no count": "did not report the prompt's number of tokens",
    "wrong model": "the answer is from model 'org/other'",
    "no choices": "not an OpenAI completion",
    "no object": "not an OpenAI completion",
    "no text": "not an OpenAI completion",
    "refused": "maximum context length is 64 tokens",
    "missing": "refuses with status 404",
    "error": "out of blocks (7 attempts)",
    "cut": "was cut after 2 of 6 tokens (finish_reason 'length'): the server's context is full: -c of llama-server",
    "filtered": "ended with finish_reason 'content_filter'",
    "aborted": "ended with finish_reason 'abort'",
    "unended": "ended with finish_reason None",
    "no ids": "the answer's text is not the text of its token ids",
    "other text": "the answer's text is not the text of its token ids",
    "unknown id": "the answer has a token 1000000, but the vocabulary",
    "half a character": "halves of characters",
    "error in 200": "the answer is an error: no access with None",
    "latin-1": "the answer is not UTF-8 (7 attempts)",
    "likely": "gives 1000 as a log-probability",
    "few logprobs": "log-probabilities of 1 of its 6 tokens",
    "moved": "refuses with status 302: it redirects to http://127.0.0.1:9/",
}


@pytest.mark.heavy
def test_a_fault_that_stays_names_its_sample_and_leaves_the_others(tiny_folder, tmp_path, capsys):
    """A prompt of each kind, between two that are answered well: the first finds out what the server can do."""
    kinds, of_prompt = iter(["well", *FAULTS]), {}

    def behave(number: int, payload: dict) -> str:
        prompt = json.dumps(payload["prompt"])
        if prompt not in of_prompt:
            of_prompt[prompt] = next(kinds, "well")
        return of_prompt[prompt]

    depths = ",".join(map(str, range(0, 4 * (len(FAULTS) + 2), 4)))
    options = ["engine.concurrency=1", "engine.repeat=0", f"benchmark.depths=[{depths}]"]
    folder, error = asked_by(FakeEngine(behave), tiny_folder, tmp_path, *options)
    assert isinstance(error, Incomplete) and f"{len(FAULTS)} records could not be made" in str(error)
    told = [line for line in capsys.readouterr().err.splitlines() if "no record of sample 'number-330-" in line]
    assert len({line.partition(" under 'one': ")[0] for line in told}) == len(FAULTS)
    for line, (kind, reason) in zip(told, FAULTS.items(), strict=True):
        assert reason in line, kind
    assert len(comparable(folder)) == 2


@pytest.mark.heavy
def test_a_server_that_dies_loses_nothing_and_the_same_command_goes_on(calm, tiny_folder, tmp_path):
    engine = FakeEngine()

    def behave(number: int, payload: dict) -> str:
        if number < 3:
            return "well"
        engine.dead = True
        return "closed"

    engine.behave = behave
    options = ["engine.concurrency=1", "engine.repeat=0", "engine.retries=1"]
    folder, error = asked_by(engine, tiny_folder, tmp_path, *options)
    assert isinstance(error, Incomplete) and "does not answer any more" in str(error)
    assert "the same command continues from there" in str(error)
    survived = (folder / "records.jsonl").read_bytes()
    assert survived.count(b"\n") == 2
    engine.dead, engine.behave = False, lambda number, payload: "well"
    engine.ended.clear()
    again, error = asked_by(engine, tiny_folder, tmp_path, *options)
    assert error is None and again == folder
    assert (folder / "records.jsonl").read_bytes().startswith(survived)
    assert {row["key"] for row in comparable(folder)} == {row["key"] for row in comparable(calm)}


def test_another_version_makes_other_records(calm, tiny_folder, tmp_path):
    engine = FakeEngine()
    engine.version = "0.33.0"
    folder, error = asked_by(engine, tiny_folder, tmp_path)
    assert error is None and folder.name == calm.name
    assert not {row["key"] for row in comparable(folder)} & {row["key"] for row in comparable(calm)}


@pytest.mark.heavy
def test_distances_follow_the_first_settings_answer(tiny_folder, tmp_path):
    first, second = FakeEngine(), FakeEngine()
    second.shift = 1
    with first.running() as a, second.running() as b:
        two = ["engine.label=[bf16,fp8]", "distance=true"]
        folder = reported(*command(tiny_folder, tmp_path, f"[{a},{b}]", *two))
    found = {name: list(rows["distance"]) for name, rows in load(folder).groupby("setting")}
    assert all(one == {"top1": 1, "agreed": 1, "kl_at_least": 0} for one in found["bf16"])
    assert all(one["top1"] == 1 and one["kl_at_least"] > 0 for one in found["fp8"])
    assert "kl_at_least" in (folder / "table.md").read_text()


@pytest.mark.heavy
@pytest.mark.parametrize("kind", ["no logprobs", "odd logprobs"])
def test_without_log_probabilities_there_is_no_distance(kind, tiny_folder, tmp_path):
    engine = FakeEngine(lambda number, payload: kind)
    folder, error = asked_by(engine, tiny_folder, tmp_path, "distance=true")
    assert error is None and load(folder)["distance"].isna().all()


@pytest.mark.heavy
def test_the_key_is_in_no_file_that_a_run_writes(tiny_folder, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("FAKE_KEY", "sk-very-secret")
    engine = FakeEngine(lambda number, payload: "unauthorised" if number == 2 else "well")
    engine.key = "sk-very-secret"
    folder, error = asked_by(engine, tiny_folder, tmp_path, "engine.key_env=FAKE_KEY", "engine.concurrency=1")
    assert isinstance(error, Incomplete) and "sk-very-secret" not in str(error)
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert len(files) > 3 and not any(b"sk-very-secret" in path.read_bytes() for path in files)
    printed = capsys.readouterr()
    assert "sk-very-secret" not in printed.out + printed.err and "sk-very-secret" not in page([folder])


def test_records_name_the_text_that_samples_share_as_methods_do(calm, undisturbed):
    ours, methods = load(calm), load(undisturbed)
    full = methods[methods["method"] == "full"].set_index("sample")["unit"]
    assert full.notna().all() and ours.set_index("sample")["unit"].to_dict() == full.to_dict()
