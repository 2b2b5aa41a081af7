"""Skipped tests under continuous integration (CI=true): each is a failure, unless the job may lack what it needs.

KVBENCH_MAY_LACK names what a job may lack, words of `NEEDED` with spaces between them. KVBENCH_LEFT_OUT names a file to
which each run of the tests appends what it left out, a line for each word.
"""

import os
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

# What tests need beyond `make install`, and the reasons that skips without it give.
NEEDED = {
    "browser": r"selenium|chromium",
    "data": r"KVBENCH_DATA",
    "gemma": r"an optional model",
    "kvpress": r"kvpress is not installed",
    "latex": r"pdflatex is not installed",
    "lm-eval": r"lm[-_]eval",
    "math": r"math_verify",
    "mounts": r"mounting needs more rights",
    "papers": r"KVBENCH_PAPERS",
    "repoqa": r"tree_sitter",
    "site": r"the documentation's environment is missing",
    "slurm": r"no Slurm|hydra_submitit_launcher",
    "triton": r"'triton'",
}
# Reasons of skips that nothing missing explains.
BY_DESIGN = (
    r"only some of the tests were collected|one score for a KV head|"
    r"needs TRITON_INTERPRET=1|the interpreter compiles nothing"
)


def needed(reason: str) -> str | None:
    """The word of what a skipped test lacks; None where it lacks nothing. ValueError: an unlisted reason."""
    for word, pattern in NEEDED.items():
        if re.search(pattern, reason):
            return word
    if re.search(BY_DESIGN, reason):
        return None
    raise ValueError(f"skipped for a reason that tests/support/skips.py does not list: {reason}")


def objection(reason: str, may_lack: Iterable[str]) -> str | None:
    """Why a test must not be skipped for this reason; None where it may be."""
    try:
        word = needed(reason)
    except ValueError as error:
        return str(error)
    if word is None or word in may_lack:
        return None
    return f"skipped for want of {word}, which KVBENCH_MAY_LACK does not name: {reason}"


def reason_of(report: pytest.TestReport | pytest.CollectReport) -> str:
    return report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)


def refuse(report: pytest.TestReport | pytest.CollectReport) -> None:
    """Turn a skip into a failure where continuous integration must not skip."""
    if os.environ.get("CI") != "true" or not report.skipped or hasattr(report, "wasxfail"):
        return
    why = objection(reason_of(report), os.environ.get("KVBENCH_MAY_LACK", "").split())
    if why is not None:
        report.outcome, report.longrepr = "failed", why


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    refuse(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    report = yield
    refuse(report)
    return report


def pytest_terminal_summary(terminalreporter):
    """Append what was left out to the file that the job reads at its end."""
    file = os.environ.get("KVBENCH_LEFT_OUT")
    if not file:
        return
    words = Counter(needed(reason_of(report)) for report in terminalreporter.stats.get("skipped", []))
    with Path(file).open("a", encoding="utf-8") as lines:
        for word, count in sorted((word, count) for word, count in words.items() if word is not None):
            lines.write(f"{word}: {count} skipped\n")
