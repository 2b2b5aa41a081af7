"""A plugin of pytest: all tests are collected once, and each fault is tried in a copy of that process."""

import os
import resource
import select
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from scripts.maintenance.mutation.swap import Pair, functions_by_place, swap

Outcome = tuple[str, str]
WAIT = 900  # seconds of the clock, for tests that wait for each other


class Session:
    """`tries` is called with the collected tests' ids and `outcome_of` in place of running the tests."""

    def __init__(self, tries: Callable[["Session"], None]) -> None:
        self.tries = tries
        self.failed = -1  # a copy writes the test that failed to this pipe
        self.items: dict[str, pytest.Item] = {}
        self.reliable: dict[str, bool] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self.items = {item.nodeid: item for item in session.items}
        self.functions = functions_by_place()
        self.tries(self)
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            os.write(self.failed, report.nodeid.encode())
            os._exit(1)

    def outcome_of(self, file: Path, pairs: list[Pair], faulty: str, tests: list[str], limit: float) -> Outcome:
        """`found`, `endless`, `missed` or `not covered`, and the test that failed first.

        pairs: see `changed_functions`; faulty: what processes that the tests start import.
        """
        if not tests:
            return "not covered", ""
        source, stat = file.read_bytes(), file.stat()
        file.write_text(faulty, encoding="utf-8")
        try:
            outcome, test = self.run(tests, limit, pairs)
        finally:
            file.write_bytes(source)
            os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))
        if outcome == "found" and test and not self.passes_alone(test, limit):
            return self.outcome_of(file, pairs, faulty, [name for name in tests if name != test], limit)
        return outcome, test

    def passes_alone(self, test: str, limit: float) -> bool:
        if test not in self.reliable:
            self.reliable[test] = self.run([test], limit, [])[0] == "missed"
        return self.reliable[test]

    def run(self, tests: list[str], limit: float, pairs: list[Pair]) -> Outcome:
        reader, writer = os.pipe()
        if not (child := os.fork()):
            self.failed = writer
            self.copy(pairs, [self.items[name] for name in tests], limit)
        os.close(writer)
        ended = select.select([reader], [], [], WAIT)[0]
        if not ended:
            os.killpg(child, signal.SIGKILL)
        with os.fdopen(reader) as lines:
            failed = lines.read()
        _, status = os.waitpid(child, 0)
        if not ended or os.WIFSIGNALED(status):
            return "endless", ""
        return ("missed", "") if os.WEXITSTATUS(status) == 0 else ("found", failed)

    def copy(self, pairs: list[Pair], items: list[pytest.Item], limit: float) -> None:
        """In a process of its own: the tests until one fails."""
        code = 1
        try:
            os.setpgrp()
            seconds = 3 * int(limit) + 60
            resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            os.dup2(1, 2)
            swap(pairs, self.functions)
            for item, following in zip(items, [*items[1:], None], strict=True):
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            code = 0
        except BaseException as error:
            print(error, file=sys.stderr)
        finally:
            os._exit(code)
