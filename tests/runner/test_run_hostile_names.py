"""Names that are markup to a terminal's library are text: in a run, its progress and the commands that read it."""

import io
from types import SimpleNamespace

import pytest

from kvbench.evaluation.record import Stage
from kvbench.records.store import RECORDS, to_line
from kvbench.runner import progress
from kvbench.runner.estimate import Estimate
from kvbench.utils.console import SafeConsole
from tests.support import records
from tests.support.command import command_line, kvbench
from tests.support.names import HOSTILE
from tests.support.runs import arguments

pytestmark = pytest.mark.heavy

MARKUP = ["[/x]", "[/b]0", "[bold]", "[link=x]", "{x}", "a\\"]


@pytest.mark.parametrize("name", MARKUP)
def test_a_model_of_any_name_is_evaluated_and_reported(name, tiny_folder, tmp_path, capsys):
    few = ("method=full", "limit=1", f"model.name='{name}'".replace("\\", "\\\\"))
    assert command_line(*arguments(tiny_folder, tmp_path, *few)) == 0
    for command in ("records", "status"):
        assert kvbench(command, tmp_path) == 0
        assert name in capsys.readouterr().out or command == "status"


def test_progress_shows_any_sample_and_setting_as_it_is(monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr(progress, "err", SafeConsole(file=stream, force_terminal=True, width=400, markup=False))
    monkeypatch.setattr(progress, "requested_keys", lambda *_: set(HOSTILE))
    run = SimpleNamespace(benchmark=SimpleNamespace(name="[/x]"), settings=[], stage=Stage("[/x]"))
    made = [{"sample": name, "setting": name} for name in HOSTILE]
    store, estimate = SimpleNamespace(done=set()), Estimate({}, {}, long=False)
    assert list(progress.with_progress(made, run, [], store, [], estimate)) == made
    assert f"{len(HOSTILE)}/{len(HOSTILE)}" in stream.getvalue()


def test_records_of_any_name_are_counted(tmp_path, capsys):
    fields = ("model", "benchmark", "sample", "setting", "run")
    made = [records.record(**dict.fromkeys(fields, name), key=str(i)) for i, name in enumerate(HOSTILE)]
    (tmp_path / RECORDS).write_bytes(b"".join(map(to_line, made)))
    kvbench("records", tmp_path)
    printed = capsys.readouterr()
    assert f"{len(set(HOSTILE))} in 1 file" in printed.out and not printed.err
    assert "[/x]" in printed.out
