"""Commands that compare answers, on runs and settings that have none to compare."""

import pytest

from tests.support import records
from tests.support.command import kvbench
from tests.support.report_run import write_run


@pytest.mark.parametrize("command", ["compare", "served"])
@pytest.mark.parametrize(
    "kind, said", [("speed", "is a run of benchmark=speed: no answers"), ("probe", "is a run of probes")]
)
def test_runs_without_answers_are_refused_in_one_line(capsys, tmp_path, kind, said, command):
    write_run(tmp_path / "run", [records.record(kind, sample="s")])
    assert kvbench(command, tmp_path / "run") == 2
    printed = capsys.readouterr().err
    assert said in printed and printed.count("\n") == 1


def test_runs_without_answers_in_a_folder_of_runs_are_left_out_in_a_line(capsys, tmp_path):
    """One run of probes kept all others of `runs` from being compared."""
    of = ("full", "snapkv 0.2")
    answers = [records.record(sample=f"s{i}", setting=setting, method=setting) for i in range(4) for setting in of]
    write_run(tmp_path / "runs" / "answers", answers)
    assert kvbench("compare", tmp_path / "runs") == 0
    alone = capsys.readouterr()
    write_run(tmp_path / "runs" / "probes", [records.record("probe", sample="s")])
    assert kvbench("compare", tmp_path / "runs") == 0
    beside = capsys.readouterr()
    assert beside.out == alone.out and "probes is a run of probes" in beside.err
    assert kvbench("compare", tmp_path / "runs" / "answers", tmp_path / "runs" / "probes") == 2


def test_a_run_without_any_record_in_a_folder_of_runs_is_refused(capsys, tmp_path):
    """A gate must not pass without the answers of a run that was to be compared."""
    write_run(tmp_path / "answers", [records.record(sample="s")])
    write_run(tmp_path / "begun", [])
    assert kvbench("compare", tmp_path) == 2 and "begun holds no record yet" in capsys.readouterr().err


def test_a_setting_without_a_sample_of_the_baseline_is_no_pass(capsys, tmp_path):
    """A gate passed with a setting of which nothing was compared: it was in neither the table nor the verdicts."""
    made = [records.record(sample=f"s{i}", setting=name, method=name) for i in range(40) for name in ("full", "h2o")]
    folder = write_run(tmp_path / "run", [*made, records.record(sample="other", setting="knorm", method="knorm")])
    assert kvbench("compare", folder, "--margin", 0.1) == 3
    printed = capsys.readouterr()
    assert "undecided, which is not passed: knorm, which has no record that the margin of 0.1 is about" in printed.out
    assert kvbench("compare", folder) == 0
    assert "not compared, as no sample has score under both: knorm" in capsys.readouterr().err
