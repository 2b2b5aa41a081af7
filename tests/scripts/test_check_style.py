"""Rules that `make lint` checks: each finds what breaks it, and nothing in this checkout does."""

import pytest

from scripts.maintenance.check_style import PACKAGE, TESTS, faults, main, timed_assertions, unnamed_results


def test_no_file_breaks_a_rule(capsys):
    assert (main(), capsys.readouterr().out) == (0, "Every rule of the house holds\n")


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("start = time.perf_counter()\n work()\n assert time.perf_counter() - start < 5", [4]),
        ("start = monotonic()\n took = monotonic() - start\n assert took < 1", [4]),
        ("while not done():\n  assert time.monotonic() < end", [3]),
        ("end = time.monotonic() + 300\n if time.monotonic() > end:\n  pytest.fail('hangs')", []),
        ("time.sleep(0.1)\n assert record['seconds'] > 0", []),
    ],
)
def test_timed_assertions_are_found(body, found):
    assert timed_assertions(f"def test():\n {body}") == found


@pytest.mark.parametrize(
    ("returned", "found"),
    [
        ("tuple[int, int]", True),
        ("tuple[int, str, float] | None", True),
        ("Iterator[tuple[str, str]]", True),
        ("tuple[int, str]", False),
        ("tuple[int, ...]", False),
        ("Interval", False),
    ],
)
def test_results_without_names_are_found(returned, found):
    assert unnamed_results(f"def made() -> {returned}: ...") == ["made"] * found


PAIR = "def made() -> tuple[int, int]: ..."
CLOCK = "def test():\n    assert time.time() < end"


@pytest.mark.parametrize(
    ("path", "source", "fault"),
    [
        (PACKAGE / "cache" / "base.py", PAIR, "made returns several values without names"),
        (PACKAGE / "cache" / "base.py", PAIR.replace("made", "update"), None),
        (PACKAGE / "ops" / "kernels" / "quantise.py", PAIR, None),
        (TESTS / "cache" / "test_base.py", PAIR, None),
        (TESTS / "cache" / "test_base.py", CLOCK, "line 2 asserts about time"),
        (TESTS / "cache" / "test_base_readers.py", "", None),
        (TESTS / "cache" / "test_baser.py", "", "named after no module of its room"),
        (TESTS / "end_to_end" / "test_anything.py", "", None),
        (TESTS / "cache" / "test_base.py", "x = 1\n" * 301, "301 lines"),
        (TESTS / "cache" / "test_base.py", "pytest.importorskip('triton')", "skips without tests/support/needs.py"),
    ],
)
def test_a_file_that_breaks_a_rule_is_told(path, source, fault):
    found = list(faults(path, source))
    assert found == [] if fault is None else len(found) == 1 and found[0].startswith(fault)
