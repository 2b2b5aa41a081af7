"""A long table in LaTeX as several floats."""

import shutil
import subprocess

import pytest

from kvbench.report.tables.latex_parts import LINES, parts
from kvbench.report.tables.text_latex import text_latex
from kvbench.report.tables.text_table import TextTable
from tests.support.made_runs import drawn, make_runs, table
from tests.support.needs import need


def test_a_table_that_a_page_has_room_for_is_one_float():
    assert parts([("A", ["1", "2"]), ("A", ["3"]), ("", ["4"])], "caption") == [
        ["\\midrule", "A", "1", "2", "\\midrule", "3", "\\midrule", "4"]
    ]


def test_floats_have_whole_blocks_under_their_heading_beside_a_long_caption():
    blocks = [("A\n\\midrule", [f"{i} {j}\nbelow" for j in range(3)]) for i in range(4)]
    made = parts(blocks, "word " * 14 * (LINES - 18))  # leaves 18 lines
    heading = ["\\midrule", "A\n\\midrule"]
    assert made == [[*heading, *blocks[i][1], "\\midrule", *blocks[i + 1][1]] for i in (0, 2)]


def test_a_block_that_is_longer_than_a_page_is_cut_between_rows():
    rows = [str(i) for i in range(100)]
    made = parts([("A", rows)], "")
    assert [len(lines) for lines in made] == [LINES, LINES, 100 + 3 * 2 - 2 * LINES]
    assert [row for lines in made for row in lines[2:]] == rows


def test_a_run_of_many_settings_has_its_notes_below_the_last_float():
    rows = [[f"method {i}", "1"] for i in range(60)]
    text = text_latex(TextTable(["method", "r"], rows, "needles", ["a note"]))
    first, second = text.split("\\end{table}\n")[:2]
    assert "\\caption{needles}" in first and "a note" not in first
    assert "\\addtocounter{table}{-1}\\caption{(continued)}" in second and "a note" in second
    assert [line.split(" & ")[0] for line in text.splitlines() if line.endswith(" & 1 \\\\")] == [
        name for name, _ in rows
    ]


@pytest.mark.heavy
def test_an_experiment_of_many_settings_is_on_whole_pages_where_latex_is_installed(tmp_path):
    overrides = "+experiment=kvpress_ruler4k"
    make_runs(tmp_path / "runs", overrides, score=drawn, samples=1)
    text = table(tmp_path / "runs", overrides, ending="tex")
    assert text.count("\\begin{table*}") == text.count("\\end{table*}") > 2
    assert text.count("\nKVzip & ") == 2 * 7
    need("latex", "" if shutil.which("pdflatex") else "what goes before holds; pdflatex is not installed")
    document = "\\documentclass{article}\n\\usepackage{booktabs,graphicx}\n\\begin{document}\n%s\\end{document}\n"
    (tmp_path / "table.tex").write_text(document % text)
    made = subprocess.run(["pdflatex", "-halt-on-error", "table.tex"], cwd=tmp_path, capture_output=True, text=True)
    assert made.returncode == 0 and "too large" not in made.stdout, made.stdout[-800:]
