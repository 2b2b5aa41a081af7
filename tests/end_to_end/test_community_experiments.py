"""`+experiment=community_8b` and `community_32k`: run on a tiny model, packed, and on a leaderboard."""

import os
import re
import subprocess
import sys

import pytest

from kvbench.papers.command_line import configurations
from kvbench.papers.cost import cost
from kvbench.papers.gpu import A100, H100, RTX_4090
from kvbench.records import load
from kvbench.records.pack import write_pack
from kvbench.runner.leaderboard.command import write
from tests.support.paths import ROOT
from tests.support.runs import run

SMALL = ["benchmark.tasks=[vt]", "benchmark.lengths=[1024]", "limit=2", "ratio=0.5"]
GROUPS = ["method.kivi.storage.group=8", "method.snapkv_kivi4.storage.group=8"]  # of a tiny network's heads


@pytest.mark.parametrize("name, question", [("community_8b", "visible"), ("community_32k", "hidden")])
def test_an_experiment_of_the_community_runs_and_is_packed(name, question, tiny_folder, tmp_path):
    given = ["model=smollm2-135m", f"model.path={tiny_folder}", "model.shape=null", "model.max_length=4096"]
    folder = run(f"+experiment={name}", *given, *SMALL, *GROUPS, f"question={question}", f"output_dir={tmp_path}")
    records = load(folder)
    assert records["method"].nunique() == 14 and records.groupby("setting").size().eq(2).all()
    write_pack(folder, tmp_path / "packs" / name)
    write([tmp_path / "packs"], tmp_path)
    assert "14 settings" in (tmp_path / "leaderboard.md").read_text()


@pytest.mark.slow
def test_the_script_runs_a_sweep_and_packs_it_and_continues(tiny_folder, tmp_path):
    script = [ROOT / "scripts" / "community.sh", "community_8b", "me", "model=smollm2-135m", "method=[full,snapkv]"]
    given = [*script, f"model.path={tiny_folder}", "model.shape=null", "model.max_length=4096", *SMALL]
    environment = os.environ | {"PYTHON": sys.executable, "PYTHONPATH": str(ROOT)}
    told = [subprocess.run(given, cwd=tmp_path, env=environment, capture_output=True, text=True) for _ in range(2)]
    assert [one.returncode for one in told] == [0, 0], told[0].stderr
    packs = sorted((tmp_path / "results" / "community" / "me").glob("*/records.parquet"))
    assert len(packs) == 2  # the question visible and hidden
    assert "4 of 4 records already exist" in told[1].stderr and "pack " not in told[1].stdout
    assert (packs[0].parents[1] / "submission.yaml").is_file()


def test_the_costs_that_the_guide_states_are_those_of_the_configurations():
    """GPU hours for both models and both questions."""
    text = (ROOT / "results" / "community" / "README.md").read_text(encoding="utf-8")
    for name, batch in (("community_8b", "auto"), ("community_8b", "1"), ("community_32k", "4")):
        jobs = configurations([f"+experiment={name}", "question=visible,hidden", f"decode.batch={batch}"])
        found = [cost(jobs, gpu) for gpu in (H100, A100, RTX_4090)]
        numbers = [f"{float(f'{one.gpu_hours:.2g}'):g}" for one in found]
        row = f"| `{name}` | {batch} | {found[0].gib:.0f} GiB | {' | '.join(numbers)} |"
        assert row in text, row
        assert re.search(rf"\+experiment={name}", text)
