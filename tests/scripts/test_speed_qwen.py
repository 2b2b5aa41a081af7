"""`scripts/results/speed_qwen.py`: tables of what was measured on each machine."""

import json
import sys

from scripts.frame import folder_name
from scripts.results import speed_qwen
from tests.support.paths import ROOT

RESULTS = ROOT / "results" / "speed" / "qwen2.5-coder-0.5b-cpu"


def test_each_machine_has_tables_of_its_own_which_are_those_of_the_results(tmp_path, monkeypatch):
    machines = {path.parent.name: path for path in RESULTS.glob("*/speed.json")}
    assert len(machines) > 1
    for name, path in machines.items():
        (tmp_path / "runs" / name).mkdir(parents=True)
        for row in json.loads(path.read_text("utf-8"))["rows"]:
            assert folder_name(row["hardware"]["cpu"]) == name
            (tmp_path / "runs" / name / f"{row['length']}-{row['setting']}.json").write_text(json.dumps(row))
    words = ["speed_qwen.py", "--tables", f"--runs={tmp_path / 'runs'}", f"--out={tmp_path / 'out'}"]
    monkeypatch.setattr(sys, "argv", words)
    speed_qwen.main()
    for name in machines:
        for table in ("table.md", "table.csv", "speed.json"):
            made = tmp_path / "out" / RESULTS.name / name / table
            assert made.read_text("utf-8") == (RESULTS / name / table).read_text("utf-8")
