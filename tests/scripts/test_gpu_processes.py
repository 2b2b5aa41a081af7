"""Rows of make gpu in processes: what one tells is kept, however its process ends."""

import pytest

from scripts.benchmarks.gpu import judge
from scripts.benchmarks.gpu.processes import Row, Rows
from scripts.benchmarks.gpu.stages import Clock
from tests.support.gpu_rows import GOOD, Context

WORK = "tests.support.gpu_rows:"


@pytest.mark.heavy
def test_what_may_end_otherwise_is_a_failure_that_a_further_run_tries_again(tmp_path):
    """Time that a busy machine took, and memory that another process had."""
    log = tmp_path / "log"
    rows = [
        Row("length/1", f"{WORK}sleeps", most=0.5),
        Row("length/2", f"{WORK}out_of_memory"),
        Row("preset/good", f"{WORK}good", (str(log),)),
    ]
    first = Rows(tmp_path / "rows", {}, Clock(1))
    first.run(rows)
    assert first.found["length/1"] == {"error": "took more than 0 s", "again": True}
    assert first.found["length/2"]["error"].startswith("OutOfMemoryError") and not first.left
    again = Rows(tmp_path / "rows", {}, Clock(1))
    again.run([Row(row.name, f"{WORK}good", (str(log),)) for row in rows])
    assert all(one == GOOD for one in again.found.values()) and log.read_text() == 3 * "run\n"


@pytest.mark.heavy
def test_the_time_that_kernels_take_to_compile_is_no_part_of_a_rows_limit(tmp_path):
    rows = Rows(tmp_path / "rows", {}, Clock(1))
    rows.context = Context(compiles=[5.0])
    rows.run([Row("heads/64 8", "", most=0.2)])
    assert rows.found["heads/64 8"] == GOOD


@pytest.mark.heavy
def test_what_a_row_told_before_it_took_too_long_is_kept_and_the_row_left(tmp_path):
    rows = Rows(tmp_path / "rows", {}, Clock(1))
    rows.run([Row("speed/8192", f"{WORK}tells_and_sleeps", most=2, timed=True)])
    assert rows.found["speed/8192"]["settings"] == {"full": {"graph_tokens_per_s": 9.0}}
    assert rows.left == ["speed/8192: what comes behind"] and judge.failures(rows.found, complete=False) == []


@pytest.mark.heavy
def test_what_a_row_told_before_its_process_crashed_is_kept_beside_the_failure(tmp_path):
    rows = Rows(tmp_path / "rows", {}, Clock(1))
    rows.run([Row("speed/8192", f"{WORK}tells_and_crashes", timed=True)])
    assert rows.found["speed/8192"]["settings"] == {"full": {"graph_tokens_per_s": 9.0}}
    assert judge.failures(rows.found, complete=False) == ["speed/8192: the process ended by SIGABRT"]


@pytest.mark.heavy
def test_a_row_that_takes_too_long_prints_where_it_is_when_it_is_killed(tmp_path):
    log = tmp_path / "log"
    Rows(tmp_path / "rows", {}, Clock(1)).run([Row("length/1", f"{WORK}sleeps_with_errors_in", (str(log),), most=4)])
    assert "in sleeps_with_errors_in" in log.read_text()


@pytest.mark.heavy
def test_rows_of_one_kind_share_a_process_until_one_ends_it(tmp_path):
    def row(name: str, work: str = "process") -> Row:
        return Row(f"preset/{name}", f"{WORK}{work}", shares="preset")

    rows = Rows(tmp_path / "rows", {}, Clock(1))
    rows.run([row("a"), row("b"), row("c", "crashes"), row("d"), Row("batch/e", f"{WORK}process")])
    a, b, c, d, e = (one.get("process", one.get("error")) for one in rows.found.values())
    assert a == b and len({a, d, e}) == 3 and c == "the process ended by SIGABRT"


@pytest.mark.heavy
def test_rows_that_measure_no_time_run_together_and_a_timed_row_alone(tmp_path):
    log = tmp_path / "log"
    names = ["preset/a", "preset/b", "speed/8", "heads/c", "heads/d"]
    rows = [Row(name, f"{WORK}spans", (str(log), name), 60, timed=name == "speed/8") for name in names]
    checked = Rows(tmp_path / "rows", {}, Clock(1), together=2)
    checked.run(rows)
    assert list(checked.found) == names
    spans = {name: (start, end) for name, (start, end) in ((n, one["span"]) for n, one in checked.found.items())}
    alone = spans.pop("speed/8")
    assert all(end <= alone[0] or alone[1] <= start for start, end in spans.values())
    both = [*spans.values()]
    assert all(a[0] < b[1] and b[0] < a[1] for a, b in (both[:2], both[2:]))  # each waits for the other
