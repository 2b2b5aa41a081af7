"""The figures of served loads against their repeats and the tool's reports."""

import json
from dataclasses import replace

import pytest

from kvbench.engines.serving.record import over_repeats
from kvbench.engines.serving.reports import read_report
from kvbench.runner.verify.check_loads import loads_fit
from kvbench.runner.verify.checks import checks_of
from kvbench.runner.verify.folder import read
from kvbench.runner.verify.verdict import Verdict
from kvbench.utils.hashing import file_hash
from tests.support.fake_guidellm import REPORT
from tests.support.records import record
from tests.support.served_runs import write

VALUES = {"tokens_per_s": [49.0, 51.0]}


@pytest.fixture
def folder(tmp_path):
    """A load that was measured twice, with GuideLLM's reports."""
    (tmp_path / "guidellm").mkdir()
    reports = [tmp_path / "guidellm" / f"f16-{number}.json" for number in (1, 2)]
    for report in reports:
        report.write_bytes(REPORT.read_bytes())
    load = read_report(reports[0])[0]
    repeats = {name: [value] * 2 for name, value in load.figures.items()}
    counts = {name: 2 * getattr(load, name) for name in ("answered", "failed", "unfinished")}
    hashes = {report.name: file_hash(report) for report in reports}
    made = {"repeats": repeats, "figures": dict(load.figures), "intervals": {}, "reports": hashes, "tool": load.tool}
    write(tmp_path, [record("serve", **made, **counts)])
    return read(tmp_path)


def changed(folder, **fields):
    return loads_fit(replace(folder, records=[load | fields for load in folder.records]))


def test_figures_of_the_reports_are_proven(folder):
    assert loads_fit(folder).verdict is Verdict.PROVEN
    assert [check.name for check in checks_of(folder, {})][-1] == "loads"
    assert changed(folder, kind="method").verdict is Verdict.PROVEN  # no load: nothing to compare


@pytest.mark.parametrize(
    ("field", "value", "problem"),
    [
        ("answered", 999, "999 requests answered"),
        ("unfinished", 7, "7 requests unfinished"),
        ("tool", "guidellm 9.9", "measured by guidellm 9.9"),
        ("figures", {}, "different names"),
        ("repeats", VALUES, "different names"),
    ],
)
def test_another_value_is_wrong(folder, field, value, problem):
    check = changed(folder, **{field: value})
    assert check.verdict is Verdict.WRONG and problem in check.notes[0]


def test_a_mean_an_interval_and_repeats_of_their_own_are_wrong(folder):
    (load,) = folder.records
    figures = load["figures"] | {"tokens_per_s": 2 * load["figures"]["tokens_per_s"]}
    assert "and the mean of its repeats" in changed(folder, figures=figures).notes[0]
    doubled = [2 * value for value in load["repeats"]["tokens_per_s"]]
    check = changed(folder, figures=figures, repeats=load["repeats"] | {"tokens_per_s": doubled})
    assert check.notes[0].endswith("its repeats of tokens_per_s are not those of the reports")
    assert "the interval of tokens_per_s" in changed(folder, intervals={"tokens_per_s": [1.0, 2.0]}).notes[0]
    fits = {"figures": {"tokens_per_s": 50.0}, "repeats": VALUES, "intervals": {}}
    assert "the interval of tokens_per_s is None" in changed(folder, **fits).notes[0]
    fits["intervals"] = {"tokens_per_s": over_repeats(VALUES["tokens_per_s"])}
    assert not any("interval" in note for note in changed(folder, **fits).notes)


def test_a_changed_report_is_wrong_and_a_missing_one_unproven(folder):
    report = folder.path / "guidellm" / "f16-2.json"
    report.write_text(json.dumps(json.loads(report.read_text())))
    assert "guidellm/f16-2.json is not the file that was recorded" in loads_fit(folder).notes[0]
    report.unlink()
    check = loads_fit(folder)
    assert check.verdict is Verdict.UNPROVEN and "1 of its 2 reports are not in guidellm/" in check.notes[0]
    outside = {"../guidellm/f16-1.json": "ab" * 32}
    assert "1 of its 1 reports are not" in changed(folder, reports=outside).notes[0]
