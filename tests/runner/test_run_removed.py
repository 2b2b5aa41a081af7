"""Files of a run that somebody removes or truncates while it goes on: a line says so."""

import os
import shutil

import pytest

from kvbench.errors import Incomplete
from kvbench.evaluation import answer
from kvbench.records import load
from kvbench.records.store import RECORDS
from kvbench.runner import run as module
from tests.support.runs import arguments, compose


@pytest.fixture
def while_running(tiny_folder, tmp_path, monkeypatch):
    """A run, with an action on its folder before the third answer."""

    def go(action=None):
        decode, calls = answer.decode, []

        def decoding(*args, **options):
            calls.append(1)
            if action is not None and len(calls) == 3:
                (folder,) = tmp_path.iterdir()
                action(folder)
            return decode(*args, **options)

        with monkeypatch.context() as patched:
            patched.setattr(answer, "decode", decoding)
            few = arguments(tiny_folder, tmp_path, "method=[full,streaming_llm]", "ratio=0.5", "decode.batch=1")
            return module.run(compose(*few))

    return go


def test_records_that_were_truncated_are_no_other_shards(while_running, capsys):
    with pytest.raises(Incomplete, match=r"^2 records in .* disappeared while kvbench was running, because a file was"):
        while_running(lambda folder: os.truncate(folder / RECORDS, 0))
    assert "left to other shards" not in capsys.readouterr().err
    assert len(load(while_running())) == 6


def test_a_manifest_that_was_removed_is_written_again(while_running, capsys):
    folder = while_running(lambda folder: shutil.rmtree(folder / "manifests"))
    (manifest,) = (folder / "manifests").iterdir()
    line = f"{manifest} was removed while kvbench was running; it is written again"
    assert line in "".join(capsys.readouterr().err.splitlines())
    assert (folder / "table.md").exists() and len(load(folder)) == 6
