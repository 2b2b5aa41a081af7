"""Tables as text, whatever the names in them."""

import csv
import io

import pandas as pd

from kvbench.report.tables.paper.latex import escape
from kvbench.report.tables.text_table import TextTable
from kvbench.utils.console import SafeConsole
from kvbench.utils.csv_files import csv_text
from tests.support.names import HOSTILE

RICH_ALONE = {"\x1b", *map(chr, (*range(9), *range(11, 32), *range(127, 160)))}


def test_a_console_prints_any_name_and_none_of_its_control_characters():
    stream = io.StringIO()
    console = SafeConsole(file=stream, width=400)
    rows = [[name, "1"] for name in HOSTILE]
    console.print(TextTable(["name", *HOSTILE[:2]][:2], rows, title="".join(HOSTILE), notes=HOSTILE).rich())
    for name in HOSTILE:
        console.print(name, markup=False)
    text = stream.getvalue()
    assert not RICH_ALONE & {*text}
    assert all(name in text for name in HOSTILE if name.isprintable() and name.strip())


def test_every_row_of_a_markdown_table_has_its_columns():
    rows = [[name, name] for name in HOSTILE]
    lines = TextTable(["a|b", "c\nd"], rows).markdown().splitlines()
    assert len(lines) == len(rows) + 2
    assert {line.replace(r"\|", "").count("|") for line in lines} == {3}


def test_a_csv_file_holds_no_formula_and_numbers_stay_numbers():
    whole = [name for name in HOSTILE if "\ud800" not in name]
    frame = pd.DataFrame({"=name": whole, "number": -1.5, "count": -2})
    text = csv_text(frame)
    header, *rows = list(csv.reader(io.StringIO(text, newline="")))
    assert header == ["'=name", "number", "count"]
    assert len(rows) == len(whole)
    for name, (cell, number, count) in zip(whole, rows, strict=True):
        assert cell.removeprefix("'") == name.removeprefix("'").replace("\r", "\n")
        assert not cell.startswith(("=", "+", "-", "@", "\t", "\r"))
        assert (float(number), int(count)) == (-1.5, -2)


def test_latex_prints_any_name_as_it_is():
    for name in HOSTILE:
        text = escape(name)
        assert text.replace(r"\{", "").replace(r"\}", "").count("{") == text.replace(r"\{", "").replace(
            r"\}", ""
        ).count("}")
        assert not text.startswith(("[", "*")) and all(c.isprintable() for c in text)
        for special in "&%#_$":
            assert text.count(special) == text.count(f"\\{special}") or special == "$"
