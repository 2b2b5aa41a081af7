"""Commands that compare answers, on runs that have none."""

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
