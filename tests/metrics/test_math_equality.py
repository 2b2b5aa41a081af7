"""Mathematical equality in a process of its own, which is given up and started again where it takes too long."""

import io
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

from kvbench.errors import UserError
from kvbench.metrics import math_equality, math_equality_process
from kvbench.metrics.math_equality import Comparer
from tests.support.needs import need, packages

PROGRAM = """
import json, sys, time
print('"ready"', flush=True)
for line in sys.stdin:
    expression, text = json.loads(line)
    if expression == "for ever":
        time.sleep(1000)
    if expression == "die":
        sys.exit()
    print(json.dumps(expression == text), flush=True)
"""


@pytest.fixture
def comparer(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    comparer = Comparer(program, seconds=60)
    yield comparer
    comparer.stop()


@pytest.mark.heavy
def test_one_process_answers_one_pair_after_the_other(comparer):
    assert [comparer.equal(*pair) for pair in (("é\n", "é\n"), ("1", "2"), ("x", "x"))] == [True, False, True]
    process = comparer.process
    assert comparer.equal("1", "1") and comparer.process is process


@pytest.mark.heavy
def test_a_comparison_that_does_not_end_is_undecided_and_the_next_one_is_made(comparer):
    comparer.seconds = 0.2
    assert comparer.equal("for ever", "x") is None
    assert comparer.process is None
    comparer.seconds = 60
    assert comparer.equal("die", "x") is None
    assert comparer.equal("1", "1") is True


@pytest.mark.heavy
def test_a_process_that_does_not_start_is_one_line(tmp_path):
    program = tmp_path / "program.py"
    program.write_text("raise SystemExit(1)")
    with pytest.raises(UserError, match="does not start"):
        Comparer(program).equal("1", "1")


def test_the_process_compares_with_math_verify(monkeypatch, capsys):
    """Its loop, with a Math-Verify of our own: a text that cannot be read equals nothing."""
    verifier = ModuleType("math_verify")

    def parse(text, parsing_timeout):
        assert parsing_timeout is None
        if "broken" in text:
            raise RuntimeError(text)
        return text

    verifier.parse = parse
    verifier.verify = lambda expected, found, timeout_seconds: expected == found
    monkeypatch.setitem(sys.modules, "math_verify", verifier)
    pairs = [["1", "\\boxed{1}"], ["1", "\\boxed{2}"], ["1", "broken"]]
    monkeypatch.setattr(sys, "stdin", io.StringIO("".join(json.dumps(pair) + "\n" for pair in pairs)))
    math_equality_process.main()
    assert capsys.readouterr().out.splitlines() == ['"ready"', "true", "false", "false"]


@pytest.mark.heavy
def test_expressions_that_are_equal_are_found_by_math_verify():
    need("math", packages("math", "math_verify"))
    comparer = math_equality.comparer()
    assert Path(comparer.program).is_file()
    pairs = {
        ("\\frac{1}{2}", "\\boxed{0.5}"): True,
        ("\\frac{x}{2}", "the answer is \\boxed{x/2}"): True,
        ("\\left( 3, \\frac{\\pi}{2} \\right)", "\\boxed{(3, \\pi/2)}"): True,
        ("2", "\\boxed{200}"): False,
        ("p - q", "\\boxed{q - p}"): False,
        ("5", "no answer"): False,
    }
    assert {pair: comparer.equal(*pair) for pair in pairs} == pairs
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(comparer, "seconds", 1)
        assert comparer.equal("5", "\\boxed{10^{10^{10^{10}}} + 1}") in (None, False)
    assert comparer.equal("5", "\\boxed{5}") is True
