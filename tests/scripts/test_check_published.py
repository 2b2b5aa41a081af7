"""scripts/compare/check_published.py: passes on the papers' text and finds any difference from it."""

import os
import re
import shutil
import sys
from pathlib import Path

import pandas as pd
import pytest

from kvbench.papers.published import PUBLISHED, errata, items, published
from tests.support.needs import needs

PAPERS = os.environ.get("KVBENCH_PAPERS")
needs_papers = needs("papers", "" if PAPERS else "KVBENCH_PAPERS names no folder with the papers' text")

POOLING = """
Name\tQasper\tMusique\tMulti-News\tTREC\tTriviaQA
Full KV\t29.75\t22.35\t26.21\t73.00\t90.56
Streaming LLM\t8.68\t15.97\t14.64\t38.00\t84.70
H2O\t11.34\t17.94\t19.13\t38.00\t72.30
Ours\t14.05\t6.95\t6.00\t33.33\t23.61

Table 2: Comparison.
"""
SIMLAYER = """
some words. Table 2: Compression.

\tLLaM\tA2-7B\tLLaM\tA-3-8B\tMistr\tal-7B
\tLayers\tKV\tLayers\tKV\tLayers\tKV
MiniCache\t1.33×\t1.27×\t1.33×\t1.25×\t1.33×\t1.26×
+ 4bit Q.\t$1.33 \\times$\t$3.95 \\times$\t$1.33 \\times$\t$3.88 \\times$\t$1.33 \\times$\t3.92×
SLKV(ours)\t1.39×\t$1.35 \\times$\t2.04 imes\t$1.85 \\times$\t1.83 ×\t1.71×
+ 4bit Q.\t\t\t\t\t\t
"""
TWO = ["pooling_merge_table2", "simlayerkv_table2"]


@pytest.fixture
def script():
    """scripts/compare/check_published.py as a module."""
    from scripts.compare import check_published

    return check_published


@pytest.fixture
def texts(tmp_path) -> Path:
    """The lines of two tables as the extractions have them, the second one damaged."""
    (tmp_path / "pooling_merge.md").write_text(POOLING, encoding="utf-8")
    (tmp_path / "simlayerkv.md").write_text(SIMLAYER, encoding="utf-8")
    return tmp_path


def test_the_check_passes_on_equal_tables_and_counts_what_is_lost(script, texts, capsys):
    assert script.check(TWO, texts, PUBLISHED) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["pooling_merge_table2", "20", "0", "0"] in lines
    assert ["simlayerkv_table2", "18", "0", "6"] in lines


@pytest.mark.parametrize(
    ("paper", "change", "says"),
    [
        ("pooling_merge", ("6.95", "6.96"), "pooling_merge multi_news|musique: 6.95, the paper has 6.96"),
        ("pooling_merge", ("72.30", "72.3"), "72.30, the paper has 72.3$"),
        ("pooling_merge", ("H2O\t11.34", "H2P\t11.34"), "line 'H2O' is due, the paper has 'H2P'"),
        ("pooling_merge", ("Qasper\tMusique", "Musique\tQasper"), "column is 'qasper', .* means 'musique'"),
        ("pooling_merge", ("\t23.61", ""), "has 5 values, the paper 4"),
        ("pooling_merge", ("Ours\t14.05", "Ours\t14.05\t1.00"), "has 5 values, the paper 6"),
        ("pooling_merge", ("\n\nTable", "\nMore\t1.0\t2.0\t3.0\t4.0\t5.0\n\nTable"), "line 'More' is not in the data"),
        ("simlayerkv", ("2.04 imes", "2.0 4"), "2.04, the paper has none"),
        ("simlayerkv", ("+ 4bit Q.\t\t", "+ 4bit Q.\t1.39×\t"), "none, the paper has 1.39"),
        ("simlayerkv", ("SLKV(ours)", "MiniCache"), "line 'SLKV\\(ours\\)' is due"),
    ],
)
def test_the_check_finds_any_difference_from_the_text(script, texts, capsys, paper, change, says):
    path = texts / f"{paper}.md"
    before = path.read_text(encoding="utf-8")
    path.write_text(before.replace(*change), encoding="utf-8")
    assert path.read_text(encoding="utf-8") != before
    assert script.check(TWO, texts, PUBLISHED) == 1
    assert re.search(says, capsys.readouterr().out, flags=re.MULTILINE)


@pytest.mark.parametrize("change", [("22.35", "22.36"), ("22.35", "22.350"), ("h2o", "snapkv"), ("musique", "qasper")])
def test_the_check_finds_a_change_of_the_data(script, texts, tmp_path, change):
    copy = shutil.copytree(PUBLISHED, tmp_path / "published")
    path = copy / "pooling_merge_table2.csv"
    path.write_text(path.read_text(encoding="utf-8").replace(*change), encoding="utf-8")
    assert script.check(TWO[:1], texts, copy) == 1


def test_the_check_finds_a_wrong_average_and_a_stale_erratum(script):
    name = "spindlekv_table1"
    frames, wrong = {name: published(name)}, {name: errata(name)}
    assert script.averages(frames, wrong) == (16, [])
    off = frames[name].copy()
    cell = (off["setting"] == "40.5%") & (off["column"] == "average")
    off.loc[cell, ["value", "printed"]] = [41.14, "41.14"]
    (problem,) = script.averages({name: off}, wrong)[1]
    assert "average 41.14, mean of 16 cells 41.1562" in problem
    unsaid = {name: wrong[name][wrong[name]["kind"] != "average"]}
    assert "mean of 16 cells 31.955" in script.averages(frames, unsaid)[1][0]
    off = frames[name].copy()
    cell = (off["setting"] == "25.1%") & (off["column"] == "average")
    off.loc[cell, ["value", "printed"]] = [31.96, "31.96"]
    assert "yet an erratum calls it wrong" in script.averages({name: off}, wrong)[1][0]


def test_the_check_finds_figures_that_a_paper_prints_in_two_ways(script):
    names = ["pyramidkv_table1", "pyramidkv_table2", "pyramidkv_table8"]
    frames, wrong = {name: published(name) for name in names}, {name: errata(name) for name in names}
    twice, apart = script.repeats(frames, wrong)
    assert twice >= 9 * 17 and apart == []
    wrong["pyramidkv_table2"] = wrong["pyramidkv_table2"][wrong["pyramidkv_table2"]["kind"] != "contradiction"]
    assert any("22.55 in Table 2" in problem for problem in script.repeats(frames, wrong)[1])


def test_without_the_papers_the_script_says_what_it_needs(script, monkeypatch, capsys):
    monkeypatch.delenv("KVBENCH_PAPERS", raising=False)
    monkeypatch.setattr(sys, "argv", ["check_published"])
    assert script.main() == 2
    error = capsys.readouterr().err
    assert "--papers or KVBENCH_PAPERS" in error and error.count("\n") == 1
    monkeypatch.setattr(sys, "argv", ["check_published", "--papers", "nowhere"])
    assert script.main() == 2
    assert "cannot read the text of pooling_merge" in capsys.readouterr().err


@needs_papers
def test_every_figure_is_the_papers(script, capsys):
    assert script.check([], Path(PAPERS), PUBLISHED) == 0
    assert re.search(r"^all +3500 +36 +55$", capsys.readouterr().out, flags=re.MULTILINE)


@needs_papers
def test_a_changed_digit_is_found_in_every_file(script, tmp_path, capsys):
    copy = shutil.copytree(PUBLISHED, tmp_path / "published")
    missed = []
    for name in items():
        path = copy / f"{name}.csv"
        text = path.read_text(encoding="utf-8")
        frame = pd.read_csv(path, dtype=str, keep_default_na=False)
        legible = frame.index[frame["value"] != ""]
        at = legible[len(legible) * 2 // 3]
        digit = frame.loc[at, "value"][-1]
        frame.loc[at, "value"] = frame.loc[at, "value"][:-1] + str((int(digit) + 1) % 10)
        frame.to_csv(path, index=False)
        if script.check([name], Path(PAPERS), copy) != 1:
            missed.append(name)
        path.write_text(text, encoding="utf-8")
    capsys.readouterr()
    assert missed == []
