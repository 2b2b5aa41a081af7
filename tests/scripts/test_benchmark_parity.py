"""scripts/compare/benchmark_parity.py counts what it compares and fails where the other side differs."""

import subprocess
import sys

import pytest

from scripts.compare import benchmark_parity
from tests.support.published_prompts import babilong_prompts

# A plain reading of BABILong's metric behind the names of the released one.
METRICS = """
TASK_LABELS = {{"qa1": ["kitchen", "garden"]}}

def compare_answers(target, output, question, task_labels):
    return {verdict}
"""
# What babilong/prompts.py has to fill a template, which the stand-in of its texts lacks.
FILL = """
def get_formatted_input(context, question, examples, instruction, post_prompt):
    texts = {"examples": examples, "instruction": instruction, "post_prompt": post_prompt}
    return DEFAULT_TEMPLATE.format(context=context.strip(), question=question, **texts).strip()
"""


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    package, answers = tmp_path / "babilong", tmp_path / "babilong_evals" / "maker" / "model"
    package.mkdir()
    answers.mkdir(parents=True)
    file = babilong_prompts(package, ["qa1"], monkeypatch)
    source = file.read_text().replace('raise SystemExit("this file is not to be run")', "pass")
    file.write_text(source + FILL)
    monkeypatch.setattr(
        benchmark_parity.babilong.prompts, "SHA256", {"qa1": benchmark_parity.babilong.prompts.SHA256["qa1"]}
    )
    rows = "target,output,question\nkitchen,The kitchen.,Where?\nkitchen,garden,Where?\n"
    (answers / "qa1_0k_yes.csv").write_text(rows)
    for command in (["init", "-q"], ["add", "."], ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "a"]):
        subprocess.run(["git", "-C", str(tmp_path), *command], check=True)
    return tmp_path


@pytest.mark.parametrize("verdict, different", [("target in output", 0), ("True", 1)])
def test_a_difference_is_counted_and_fails(checkout, monkeypatch, capsys, verdict, different):
    (checkout / "babilong" / "metrics.py").write_text(METRICS.format(verdict=verdict))
    monkeypatch.setattr(sys, "argv", ["benchmark_parity.py", f"babilong={checkout}"])
    with pytest.raises(SystemExit) as ended:
        benchmark_parity.main()
    assert ended.value.code == (different > 0)
    printed = capsys.readouterr().out
    assert f"verdicts on the answers of 1 files: 2 compared, {different} different" in printed
    assert "prompts: 1 compared, 0 different" in printed


def test_an_unknown_benchmark_is_refused(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["benchmark_parity.py", "babel=/nowhere"])
    with pytest.raises(SystemExit, match="'babel=/nowhere' is not BENCHMARK=PATH"):
        benchmark_parity.main()
