"""A signal ends a run with whole records, a manifest that names it, and the next attempt goes on from there."""

import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from kvbench.evaluation import evaluate as runner
from kvbench.records.progress import unfinished
from kvbench.records.store import RECORDS, Store, read_records
from kvbench.report.page.run_data import read_run
from kvbench.runner import prerequisites
from kvbench.runner.failures import one_line_errors
from kvbench.runner.job_state import ended_by
from kvbench.runner.starting_note import STARTING
from kvbench.utils import signals
from kvbench.utils.signals import STOPS, Stopped, stoppable, unbroken
from tests.support.command import command_line
from tests.support.runs import arguments, comparable, reported, run

pytestmark = pytest.mark.usefixtures("interruptible")


def statuses(folder) -> list[dict]:
    manifests = [json.loads(path.read_text()) for path in (folder / "manifests").iterdir()]
    return sorted(manifests, key=lambda manifest: manifest["there"])


@pytest.mark.heavy
@pytest.mark.parametrize("signum", [pytest.param(signal.SIGUSR1, marks=pytest.mark.slow), signal.SIGTERM])
def test_a_signalled_run_stops_and_the_next_goes_on(signum, undisturbed, tiny_folder, tmp_path, monkeypatch):
    records = runner.records

    def signalled(*args):
        for made, record in enumerate(records(*args)):
            if made == 4:
                os.kill(os.getpid(), signum)
            yield record

    monkeypatch.setattr(runner, "records", signalled)
    with pytest.raises(Stopped, match=signum.name) as stop, stoppable():
        reported(*arguments(tiny_folder, tmp_path))
    assert stop.value.exit_code == 128 + signum
    monkeypatch.undo()
    (folder,) = (path.parent for path in tmp_path.rglob("manifests"))
    said = f"unfinished: 4 of 27 records, stopped by {signum.name}"
    assert unfinished(folder) == said and read_run(folder)[0]["caption"].startswith(f"{said} · ")
    reported(*arguments(tiny_folder, tmp_path), "method=full", "ratio=0.5")  # a table of all records, of both commands
    for name in ("table.md", "table.tex"):
        assert "unfinished: 4 of 27 records" in " ".join((folder / name).read_text(encoding="utf-8").split())
    folder = reported(*arguments(tiny_folder, tmp_path))
    assert comparable(folder) == comparable(undisturbed)
    first, _, last = sorted(statuses(folder), key=lambda manifest: manifest["started"])
    assert (first["status"], first["records"], first["wanted"]) == (f"stopped by {signum.name}", 4, 27)
    assert (last["status"], last["there"] + last["records"]) == ("finished", 27)
    assert unfinished(folder) == "" and "unfinished" not in read_run(folder)[0]["caption"]


def test_a_signal_while_a_record_is_written_is_heard_when_it_is_whole(tiny_folder, tmp_path, monkeypatch):
    append = Store.append

    def signalled(store, record):
        os.kill(os.getpid(), signal.SIGUSR1)
        time.sleep(0.01)  # the handler runs here
        append(store, record)

    monkeypatch.setattr(Store, "append", signalled)
    with pytest.raises(Stopped), stoppable():
        run(*arguments(tiny_folder, tmp_path))
    (folder,) = tmp_path.iterdir()
    whole, torn = read_records(folder / RECORDS)
    assert (len(whole), torn) == (1, [])
    assert statuses(folder)[0]["records"] == 1


def test_a_signal_that_something_swallows_is_heard_again_at_the_next_record():
    with pytest.raises(Stopped), stoppable():
        try:
            os.kill(os.getpid(), signal.SIGUSR1)
        except BaseException:
            heard = True
        with unbroken():
            pass
    assert heard


def test_only_the_first_signal_stops_but_a_second_interrupt_gives_up():
    with pytest.raises(Stopped, match="SIGUSR1"), stoppable():
        try:
            os.kill(os.getpid(), signal.SIGUSR1)
        finally:
            os.kill(os.getpid(), signal.SIGUSR2)
            os.kill(os.getpid(), signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), stoppable():
        try:
            os.kill(os.getpid(), signal.SIGINT)
        finally:
            os.kill(os.getpid(), signal.SIGINT)


def test_handlers_are_what_they_were_afterwards_and_one_that_was_there_gets_the_signal():
    heard = []
    before = signal.signal(signal.SIGUSR2, lambda *args: heard.append(args[0]))
    try:
        handlers = {signum: signal.getsignal(signum) for signum in STOPS}
        with pytest.raises(Stopped), stoppable():
            assert signal.getsignal(signal.SIGUSR2) is signals._receive
            os.kill(os.getpid(), signal.SIGUSR2)
        assert heard == [signal.SIGUSR2]
        assert {signum: signal.getsignal(signum) for signum in STOPS} == handlers
    finally:
        signal.signal(signal.SIGUSR2, before)


def test_ignored_signals_stay_ignored_and_a_handled_sigterm_stays_with_its_handler():
    heard = []
    before = signal.signal(signal.SIGTERM, lambda *args: heard.append(args[0]))
    ignored = signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    try:
        with stoppable():
            os.kill(os.getpid(), signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGUSR1)
        assert heard == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, before)
        signal.signal(signal.SIGUSR1, ignored)


def test_a_thread_that_cannot_set_handlers_runs_without():
    ran = []

    def inside():
        with stoppable():
            ran.append(True)

    thread = threading.Thread(target=inside)
    thread.start()
    thread.join()
    assert ran


def test_an_interrupt_is_told_in_one_line(capsys):
    with pytest.raises(SystemExit) as stop, one_line_errors(), stoppable():
        os.kill(os.getpid(), signal.SIGINT)
    assert stop.value.code == 130
    assert capsys.readouterr().err.startswith("kvbench: stopped by SIGINT;")


def test_a_signal_before_the_run_has_begun_stops_it_too(tiny_folder, tmp_path, monkeypatch, capsys):
    """Modules take seconds to load, within which submitit's own handler would raise where an import may wrap it."""
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setattr(prerequisites, "check_machine", lambda cfg: signal.raise_signal(signal.SIGUSR1))
    heard = []
    before = signal.signal(signal.SIGUSR1, lambda *args: heard.append(args[0]))
    try:
        assert command_line(*arguments(tiny_folder, tmp_path)) == 128 + signal.SIGUSR1
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert heard == [signal.SIGUSR1]
    assert "kvbench: stopped by SIGUSR1" in capsys.readouterr().err
    (note,) = (tmp_path / STARTING).glob("*.json")
    assert json.loads(note.read_text())["status"] == "stopped by SIGUSR1"


def test_a_stop_is_no_error_of_the_run():
    assert "error" not in ended_by(Stopped(signal.SIGUSR1))
    assert ended_by(ValueError("a\n  b")) == {"status": "stopped by ValueError", "error": "a b"}


def test_a_program_that_the_previous_handler_starts_outlives_a_sigterm():
    """As Slurm sends it to `scontrol requeue`, which submitit's handler starts."""
    codes = []
    requeue = [sys.executable, "-c", "import os, signal; os.kill(os.getpid(), signal.SIGTERM)"]
    before = signal.signal(signal.SIGUSR2, lambda *args: codes.append(subprocess.call(requeue)))
    default = signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(Stopped), stoppable():
            signal.raise_signal(signal.SIGUSR2)
    finally:
        signal.signal(signal.SIGUSR2, before)
    assert codes == [0] and signal.getsignal(signal.SIGTERM) is default
