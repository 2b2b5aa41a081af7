"""Servers that refuse, change, end elsewhere, tell nothing or take messages alone: what a run does with them."""

import json
import os
import signal
from time import sleep

import pytest

from kvbench.engines.evaluate import Recorder
from kvbench.errors import Incomplete, UserError
from kvbench.records import load
from kvbench.utils.signals import Stopped, stoppable
from tests.engines.test_evaluate import asked_by, command
from tests.support.fake_engine import FakeEngine
from tests.support.runs import reported, run


@pytest.mark.heavy
def test_refusals_that_every_question_would_meet_end_the_run(tiny_folder, tmp_path):
    """The third in a row: neither the server's place nor its key changes from question to question."""
    engine = FakeEngine(lambda number, payload: "unauthorised" if number else "well")
    more = ["engine.concurrency=1", "engine.repeat=0"]
    _, error = asked_by(engine, tiny_folder, tmp_path, *more, "benchmark.depths=[0,20,40,60,80]")
    assert isinstance(error, Incomplete) and "refused 3 questions in a row" in str(error)
    assert "status 401" in str(error) and len(engine.asked) <= 5  # the first finds out what the server can do


@pytest.mark.heavy
def test_a_later_command_compares_with_the_answers_of_the_first(tiny_folder, tmp_path):
    """Its own answers are no baseline, and the first server need not be up any more."""
    first, second = FakeEngine(), FakeEngine()
    second.shift = 1
    folder, _ = asked_by(first, tiny_folder, tmp_path, "engine.flags=f16", "distance=true")
    with second.running() as url:
        again = reported(*command(tiny_folder, tmp_path, url, "engine.label=two", "engine.flags=q4", "distance=true"))
    assert again == folder
    assert "answers equal to those of the first engine: two 0 of 3" in (folder / "table.md").read_text()
    rows = {name: group for name, group in load(folder).groupby("setting")}
    assert rows["one"]["distance"].map(lambda one: one["kl_at_least"] == 0).all() and rows["one"]["equal"].isna().all()
    assert rows["two"]["distance"].map(lambda one: one["kl_at_least"] > 0).all() and not rows["two"]["equal"].any()
    assert rows["two"]["baseline"].str.fullmatch("one [0-9a-f]{16}").all()
    assert rows["two"]["top"].isna().all()


@pytest.mark.heavy
def test_equal_answers_are_counted_without_distances(tiny_folder, tmp_path):
    folder, _ = asked_by(FakeEngine(), tiny_folder, tmp_path)
    with FakeEngine().running() as url:
        reported(*command(tiny_folder, tmp_path, url, "engine.label=two"))
    assert "answers equal to those of the first engine: two 3 of 3" in (folder / "table.md").read_text()


class Ending(FakeEngine):
    """Its answers end after three tokens; `late`: one token later."""

    late = False

    def tokens(self, payload: dict) -> list[int]:
        tokens = super().tokens(payload)
        if payload["max_tokens"] < 4 or payload.get("echo"):
            return tokens
        return [*tokens[: 3 + self.late], payload["stop_token_ids"][0]]

    def top(self, token: int) -> dict:
        return super().top(token) if not self.late or token > 99 else {"token_id:150": -0.1, f"token_id:{token}": -2.0}


@pytest.mark.heavy
def test_the_end_of_an_answer_is_a_place_of_the_distance(tiny_folder, tmp_path):
    """An engine that goes on where the first ended predicts another token there, and has another answer."""
    first, second = Ending(), Ending()
    second.late = True
    with first.running() as a, second.running() as b:
        two = ["engine.label=[early,late]", "distance=true"]
        folder = reported(*command(tiny_folder, tmp_path, f"[{a},{b}]", *two))
    rows = {name: group for name, group in load(folder).groupby("setting")}
    assert rows["early"]["tokens"].map(len).eq(3).all() and rows["early"]["top"].map(len).eq(4).all()
    assert rows["late"]["distance"].map(lambda one: one["top1"]).eq(0.75).all() and not rows["late"]["equal"].any()


@pytest.mark.heavy
def test_a_server_that_tells_no_flags_needs_a_name(tiny_folder, tmp_path, monkeypatch):
    """Records of another cache at the same address would be taken for its own."""
    monkeypatch.setattr("kvbench.engines.server.cache_flags", lambda metrics: {})
    engine = FakeEngine()
    with engine.running() as url:
        arguments = command(tiny_folder, tmp_path, url)
        with pytest.raises(
            UserError, match=r"does not report how its cache is stored.*engine\.flags=.*engine\.label=NAME"
        ):
            run(*arguments)
        one = run(*arguments, "engine.flags=f16")
        two = run(*arguments, "engine.flags=q4_0")
    assert one == two and len(load(one)) == 6


def told(capsys) -> str:
    return " ".join(capsys.readouterr().err.split())


@pytest.mark.heavy
def test_a_server_that_changed_is_told_of_at_the_end_and_before_a_run_goes_on(tiny_folder, tmp_path, capsys):
    """Another cache type behind the same address, flags and version."""
    engine = FakeEngine()

    def behave(number: int, payload: dict) -> str:
        engine.shift = int(number > 4)  # after the first question, and two samples that were asked twice
        return "well"

    engine.behave = behave
    more = ["engine.concurrency=1", "engine.repeat=2", "engine.flags=f16"]
    asked_by(engine, tiny_folder, tmp_path, *more, "limit=2")
    assert "one: asked again at its end, sample 'number-330-" in told(capsys)
    other = FakeEngine()
    other.shift = 7
    asked_by(other, tiny_folder, tmp_path, *more)
    assert "one: asked again before the run goes on, sample 'number-330-" in told(capsys)
    steady = FakeEngine()
    asked_by(steady, tiny_folder, tmp_path / "steady", *more)
    assert "asked again" not in told(capsys)


@pytest.mark.heavy
def test_a_repeated_question_that_is_cut_or_filtered_is_no_noise_of_the_engine(tiny_folder, tmp_path, capsys):
    """Asked are what it can do, two samples twice each, and the second of them at the end."""
    engine = FakeEngine(lambda number, payload: {2: "filtered", 5: "cut"}.get(number, "well"))
    more = ["engine.concurrency=1", "engine.repeat=2", "limit=2"]
    folder, error = asked_by(engine, tiny_folder, tmp_path, *more)
    assert isinstance(error, Incomplete) and len(engine.asked) == 6
    shown = told(capsys)
    assert "asked again: the answer ended with finish_reason 'content_filter'" in shown
    assert "asked again at its end" in shown and "has no answer: the answer was cut after 2 of 6 tokens" in shown
    assert [repeated["equal"] for repeated in load(folder)["repeated"]] == [True]


@pytest.mark.heavy
def test_a_setting_that_computes_something_else_is_told_of_after_its_first_answers(tiny_folder, tmp_path, capsys):
    first, second = FakeEngine(), FakeEngine()
    second.shift = 900
    with first.running() as a, second.running() as b:
        run(*command(tiny_folder, tmp_path, f"[{a},{b}]", "engine.label=[bf16,odd]"))
    said = told(capsys)
    assert "odd: none of its first 3 answers begins like the baseline's" in said and "bf16: none" not in said


@pytest.mark.heavy
def test_messages_are_sent_as_they_are_and_the_template_is_the_servers(tiny_folder, tmp_path):
    engine = FakeEngine()
    engine.chats_alone = True
    folder, error = asked_by(engine, tiny_folder, tmp_path, "engine.mode=chat", "engine.flags=q8", run=reported)
    assert error is None
    rows = load(folder)
    sent = [payload for payload in engine.asked if payload["max_tokens"] > 1]
    assert all([message["role"] for message in payload["messages"]] == ["user"] for payload in sent)
    assert not any("<|im_start|>" in payload["messages"][0]["content"] for payload in sent)
    assert rows["served_tokens"].gt(0).all() and rows["tokens"].isna().all() and rows["prediction"].map(bool).all()
    assert json.loads(rows["parameters"][0])["mode"] == "chat"
    assert "mean prompt tokens in the server's template, and in kvbench's: one " in (folder / "table.md").read_text()


@pytest.mark.heavy
@pytest.mark.parametrize(
    "kind, message",
    [
        ("error in 200", "the answer is an error"),
        ("refused", "maximum context length is 64 tokens"),
        ("no choices", "not an OpenAI chat completion"),
        ("no content", "the answer's 6 tokens have no text"),
    ],
)
def test_a_chat_that_goes_wrong_is_one_line(kind, message, tiny_folder, tmp_path):
    engine = FakeEngine(lambda number, payload: kind if number else "well")
    _, error = asked_by(engine, tiny_folder, tmp_path, "engine.mode=chat", "engine.flags=q8")
    assert isinstance(error, Incomplete) and message in str(error)


def test_a_prompt_that_is_no_chat_is_refused_before_samples_are_asked(tiny_folder, tmp_path):
    engine = FakeEngine()
    with engine.running() as url, pytest.raises(UserError, match=r"engine\.mode=chat sends only messages"):
        run(*command(tiny_folder, tmp_path, url, "engine.mode=chat", "engine.flags=a"), "benchmark=niah_base")
    assert len(engine.asked) == 1


@pytest.mark.heavy
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_every_answer_that_arrived_on_the_disk(
    signum, interruptible, tiny_folder, tmp_path, monkeypatch
):
    """The sixth question and those after it are never answered; the signal comes when the five before are."""
    arrived, engine = [], FakeEngine()
    made = Recorder.record

    def record(recorder, sample):
        result = made(recorder, sample)
        arrived.append(sample.id)
        return result

    def behave(number: int, payload: dict) -> str:
        if number == 6:  # the first found out what the server can do
            while len(arrived) < 5:
                sleep(0.001)
            sleep(0.05)
            os.kill(os.getpid(), signum)
        return "slow" if number > 5 else "well"

    engine.behave = behave
    monkeypatch.setattr(Recorder, "record", record)
    more = ["engine.concurrency=4", "engine.repeat=0", "benchmark.depths=0 to 100 in 12"]
    with engine.running() as url, pytest.raises((Stopped, KeyboardInterrupt)), stoppable():
        run(*command(tiny_folder, tmp_path, url, *more))
    (folder,) = (path.parent for path in tmp_path.rglob("records.jsonl"))
    assert sorted(load(folder)["sample"]) == sorted(arrived) and len(arrived) == 5
