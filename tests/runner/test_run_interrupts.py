"""Ctrl-C twice: the first ends a run as soon as its record is whole, the second at once; neither loses a record."""

import os
import signal

import pytest

from kvbench.records import store
from kvbench.records.store import RECORDS, read_records
from kvbench.runner import failures, manifest
from tests.support.command import command_line
from tests.support.runs import arguments, comparable

pytestmark = [pytest.mark.heavy, pytest.mark.usefixtures("interruptible")]

FEW = ("method=[full,snapkv]", "ratio=0.5")


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def before(monkeypatch, module: object, name: str, act, nth: int = 1) -> None:
    """Do `act` before the nth call of a function."""
    function, calls = getattr(module, name), []

    def called(*args, **kwargs):
        calls.append(args)
        if len(calls) == nth:
            act()
        return function(*args, **kwargs)

    monkeypatch.setattr(module, name, called)


def made_again(folder, undisturbed) -> bool:
    """Whether the records are those that the undisturbed run has of the same settings."""
    found, expected = comparable(folder), {row["key"]: row for row in comparable(undisturbed)}
    return len(found) == 6 and all(expected[row["key"]] == row for row in found)


def test_the_first_interrupt_lets_a_record_be_written_and_then_ends_the_run(
    undisturbed, tiny_folder, tmp_path, capsys, monkeypatch
):
    with monkeypatch.context() as patch:
        before(patch, store.Store, "_write", interrupt, nth=4)
        assert command_line(*arguments(tiny_folder, tmp_path, *FEW)) == 130
    assert "kvbench: stopped by SIGINT; all finished records are saved" in capsys.readouterr().err
    (folder,) = tmp_path.iterdir()
    assert [len(part) for part in read_records(folder / RECORDS)] == [4, 0]
    assert command_line(*arguments(tiny_folder, tmp_path, *FEW)) == 0
    assert made_again(folder, undisturbed)


SECOND = {
    "while the record is written": (os, "fsync", 3),
    "while the file is closed": (store.Store, "close", 4),
    "while the manifest is written": (manifest, "end_manifest", 4),
    "while the line is printed": (failures, "fail", 4),
}


@pytest.mark.parametrize("moment", SECOND)
def test_the_second_interrupt_ends_the_run_at_once_and_loses_no_record(
    moment, undisturbed, tiny_folder, tmp_path, capsys, monkeypatch
):
    *place, whole = SECOND[moment]
    with monkeypatch.context() as patch:

        def twice():
            interrupt()
            before(patch, *place, interrupt)

        before(patch, store.Store, "_write", twice, nth=4)
        assert command_line(*arguments(tiny_folder, tmp_path, *FEW)) == 130
    assert "Traceback" not in capsys.readouterr().err
    (folder,) = tmp_path.iterdir()
    assert [len(part) for part in read_records(folder / RECORDS)] == [whole, 0]
    assert command_line(*arguments(tiny_folder, tmp_path, *FEW)) == 0
    assert made_again(folder, undisturbed)
