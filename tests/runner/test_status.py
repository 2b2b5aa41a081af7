"""`python -m kvbench status` tells how far each shard is, and what became of those that did not finish."""

import json
import re
import signal
from glob import glob

import pytest

from kvbench.errors import UserError
from kvbench.evaluation import evaluate as runner
from kvbench.records.store import Store
from kvbench.runner import manifest as run_manifest
from kvbench.runner import starting_note
from kvbench.utils.signals import Stopped
from tests.support.command import command_line, kvbench
from tests.support.runs import arguments, compose, run

pytestmark = pytest.mark.heavy


def told(folder, capsys) -> tuple[int, dict[str, list[str]]]:
    """Exit code, and the rows as shard -> words."""
    capsys.readouterr()
    code = kvbench("status", folder)
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    return code, {next(word for word in row if re.fullmatch(r"\d+-of-\d+", word)): row for row in rows[1:]}


def failing(after: int, error: BaseException, monkeypatch) -> None:
    """Runs end with an error once they have made some records."""
    records = runner.records

    def some(*args):
        for made, record in enumerate(records(*args)):
            if made == after:
                raise error
            yield record

    monkeypatch.setattr(runner, "records", some)


def manifests(folder) -> list:
    return sorted(folder.glob("*/manifests/*.json"))


@pytest.mark.heavy
def test_a_row_for_each_shard_says_what_became_of_it(tiny_folder, tmp_path, monkeypatch, capsys):
    shards = ["shards=4", "benchmark.depths=[0,30,60,100]", "ratio=0.5"]  # a sample, so five records, each
    folder = run(*arguments(tiny_folder, tmp_path, *shards, "shard=0"))
    assert json.loads(manifests(tmp_path)[0].read_text())["wanted"] == 5
    for shard, error in ((1, RuntimeError("out of memory,\n as it were")), (2, Stopped(signal.SIGUSR1))):
        with monkeypatch.context() as patch, pytest.raises(type(error)):
            failing(2 + shard, error, patch)
            run(*arguments(tiny_folder, tmp_path, *shards, f"shard={shard}"))
    code, rows = told(tmp_path, capsys)
    assert code == 1
    assert rows["0-of-4"][-5:-3] == ["5/5", "finished"]
    assert " ".join(rows["1-of-4"]).endswith("out of memory, as it were")
    assert rows["1-of-4"][rows["1-of-4"].index("1-of-4") + 1 :][:2] == ["3/5", "failed"]
    assert rows["2-of-4"][rows["2-of-4"].index("2-of-4") + 1 :][:4] == ["4/5", "stopped", "by", "SIGUSR1"]
    assert rows["3-of-4"][-3:] == ["0/?", "not", "begun"]
    assert folder.name in rows["3-of-4"][0]

    for shard in (1, 2, 3):
        run(*arguments(tiny_folder, tmp_path, *shards, f"shard={shard}"))
    code, rows = told(folder, capsys)  # a run's own folder will do
    assert code == 0
    assert [row[row.index("finished") - 1] for row in rows.values()] == ["5/5"] * 4


def test_a_run_is_running_while_its_lock_is_held_and_killed_afterwards(tiny_folder, tmp_path, monkeypatch, capsys):
    with monkeypatch.context() as patch, pytest.raises(OSError):
        failing(4, OSError(), patch)
        folder = run(*arguments(tiny_folder, tmp_path))
    (path,) = manifests(tmp_path)
    folder = path.parents[1]
    manifest = json.loads(path.read_text())
    for key in ("ended", "error"):
        del manifest[key]
    path.write_text(json.dumps(manifest | {"status": "running", "records": 0}))  # what a kill leaves
    with Store(folder):
        code, rows = told(tmp_path, capsys)
        assert code == 3
        assert rows["0-of-1"][rows["0-of-1"].index("0-of-1") + 1 :][:2] == ["4/27", "running"]
    code, rows = told(tmp_path, capsys)
    assert code == 1
    assert rows["0-of-1"][rows["0-of-1"].index("0-of-1") + 1 :][:2] == ["4/27", "killed"]


def test_the_clock_of_a_machine_that_is_ahead_changes_no_state(tiny_folder, tmp_path, monkeypatch, capsys):
    few = ["method=[full,snapkv]", "ratio=0.5", "limit=2"]
    with monkeypatch.context() as patch, pytest.raises(OSError):
        failing(1, OSError(), patch)
        patch.setattr(run_manifest, "now", lambda: "2038-01-19T03:14:08.000+00:00")
        run(*arguments(tiny_folder, tmp_path, *few))
    run(*arguments(tiny_folder, tmp_path, *few))
    code, rows = told(tmp_path, capsys)
    assert code == 0 and rows["0-of-1"][rows["0-of-1"].index("0-of-1") + 1 :][:2] == ["4/4", "finished"]


def test_killed_runs_are_not_counted_as_running(tiny_folder, tmp_path, capsys):
    folder = run(*arguments(tiny_folder, tmp_path, "method=full", "limit=1"))
    (path,) = manifests(tmp_path)
    killed = json.loads(path.read_text()) | {"status": "running"}
    for number, name in enumerate(("a", "b"), start=2):
        path.with_name(f"{name}.json").write_text(json.dumps(killed | {"run": name, "number": number}))
    capsys.readouterr()
    with Store(folder):
        kvbench("records", folder)
        assert "runs       3: 1 finished, 1 killed, 1 running\n" in capsys.readouterr().out
    kvbench("records", folder)
    assert "runs       3: 1 finished, 2 killed\n" in capsys.readouterr().out


@pytest.mark.heavy
def test_what_a_later_run_asked_for_too_is_told_there(tiny_folder, tmp_path, monkeypatch, capsys):
    few = ["method=[full,snapkv]", "ratio=0.5"]
    with monkeypatch.context() as patch, pytest.raises(ValueError):
        failing(1, ValueError("no"), patch)
        run(*arguments(tiny_folder, tmp_path, *few, "limit=2"))
    run(*arguments(tiny_folder, tmp_path, *few, "shards=3", "shard=1", "limit=2"))
    code, rows = told(tmp_path, capsys)
    assert code == 1 and list(rows) == ["0-of-3", "1-of-3", "2-of-3"]
    run(*arguments(tiny_folder, tmp_path, *few, "method=full"))  # other settings: both are told
    code, rows = told(tmp_path, capsys)
    assert code == 1 and list(rows) == ["0-of-3", "1-of-3", "2-of-3", "0-of-1"]
    run(*arguments(tiny_folder, tmp_path, *few))
    code, rows = told(tmp_path, capsys)
    assert code == 0 and list(rows) == ["0-of-1"]


def test_under_slurm_a_job_that_fails_before_it_has_a_folder_leaves_word(tiny_folder, tmp_path, monkeypatch, capsys):
    slurm = {"SLURM_JOB_ID": "8", "SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "1", "SLURM_RESTART_COUNT": "2"}
    for name, value in slurm.items():
        monkeypatch.setenv(name, value)
    cfg = compose(*arguments(tiny_folder, tmp_path, "shards=2", "shard=1"))
    with pytest.raises(MemoryError), starting_note.starting(cfg):
        assert told(tmp_path, capsys)[1]["1-of-2"][2:4] == ["0/?", "running"]
        raise MemoryError("no room for the model")
    code, rows = told(tmp_path, capsys)
    assert code == 1
    assert " ".join(rows["1-of-2"]).endswith("no room for the model")
    assert {"failed", "7_1", "restart", "2"} <= set(rows["1-of-2"])
    with starting_note.starting(cfg):
        folder = run(*arguments(tiny_folder, tmp_path, "shards=2", "shard=1"))
        assert not list((tmp_path / starting_note.STARTING).iterdir())
    manifest = json.loads(manifests(tmp_path)[0].read_text())
    assert manifest["slurm"] == {"job": "8", "array": "7", "task": "1", "restarts": 2}
    assert list(told(tmp_path, capsys)[1]) == ["0-of-2", "1-of-2"]
    with pytest.raises(ValueError), starting_note.starting(cfg):
        starting_note.begun(cfg)  # from here on the run's manifest tells
        raise ValueError
    assert not list((tmp_path / starting_note.STARTING).iterdir())
    assert glob(f"{tmp_path}/*") == [str(folder)]  # as the shell's: `kvbench report runs/*`


def test_under_slurm_a_job_whose_machine_lacks_the_model_leaves_word(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("SLURM_JOB_ID", "8")
    assert command_line(f"model.path={tmp_path / 'model'}", "model.shape=null", f"output_dir={tmp_path}") == 2
    code, rows = told(tmp_path, capsys)
    assert code == 1
    assert " ".join(rows["0-of-1"]).endswith("must be a folder with a config.json, or a .gguf file")


def test_a_job_that_is_started_twice_at_once_says_who_starts_it_and_leaves_its_note(tmp_path, monkeypatch):
    """The reason was an empty text."""
    monkeypatch.setenv("SLURM_JOB_ID", "8")
    cfg = compose(f"output_dir={tmp_path}")
    with starting_note.starting(cfg):
        (note,) = (tmp_path / starting_note.STARTING).glob("*.json")
        first = note.read_text()
        monkeypatch.setenv("SLURM_JOB_ID", "9")
        told = r"^another kvbench is starting the same job: wait .* \(process \d+ on .* holds .*\.lock\)$"
        with pytest.raises(UserError, match=told), starting_note.starting(cfg):
            pass
        assert note.read_text() == first


def test_elsewhere_than_under_slurm_nothing_is_left_of_a_run_that_fails_at_once(tmp_path, monkeypatch):
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    with pytest.raises(ValueError), starting_note.starting(compose(f"output_dir={tmp_path}")):
        raise ValueError
    assert not list(tmp_path.iterdir())


def test_a_damaged_manifest_is_a_row_and_hides_no_other(tiny_folder, tmp_path, capsys):
    folder = run(*arguments(tiny_folder, tmp_path, "method=full", "limit=1"))
    (folder / "manifests" / "cut.json").write_text('{"run": ')
    capsys.readouterr()
    assert kvbench("status", tmp_path) == 1
    shown = capsys.readouterr().out.splitlines()
    assert len(shown) == 3
    assert "finished" in shown[1]
    assert "cut.json" in shown[2] and "damaged" in shown[2]


def test_a_folder_without_runs_is_a_mistake_in_one_line(tmp_path, capsys):
    for folder, why in ((tmp_path, "has no runs"), (tmp_path / "none", "there is no folder '")):
        assert kvbench("status", folder) == 2
        error = capsys.readouterr().err
        assert why in error and error.count("\n") == 1


def test_help_tells_the_exit_codes(capsys):
    assert kvbench("status", "--help") == 0
    assert "exit code: 0 if all finished" in capsys.readouterr().out
