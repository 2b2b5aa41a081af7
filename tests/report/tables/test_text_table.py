"""Tables as text, whatever the names in them."""

import csv
import io
from dataclasses import replace

import pandas as pd
import pytest
from markdown_it import MarkdownIt
from rich import get_console, reconfigure

from kvbench.report.tables.paper.latex import escape
from kvbench.report.tables.text_table import TextTable, as_shown, as_text
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


def printed(table: TextTable, width: int, monkeypatch) -> list[str]:
    """The lines of a table in a terminal of so many columns, which none exceeds."""
    monkeypatch.setenv("COLUMNS", str(width))
    stream = io.StringIO()
    SafeConsole(file=stream, width=width).print(table.rich())
    lines = stream.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    return lines


NAMES = ("Pooling-merge", "CriticalKV over Expected Attention", "FullKV")
HEADER = ["method", "requested", "r", "r_bytes", "r_mean", "r_read", "digits", "95 % interval", "exact", "top1", "kl"]
CELLS = ["0.2*", "0.335", "0.335", "0.335", "0.335", "0.250", "0.10–0.50", "0.100", "0.900", "0.123"]
WIDE = TextTable(
    HEADER,
    [[name, *CELLS] for name in NAMES],
    "the title",
    ["a note"],
    lead=2,
    repeats={"r_bytes": ["r", "r_mean", "r_read"]},
)


@pytest.mark.parametrize("width", [60, 80, 100, 200])
def test_no_terminal_breaks_names_or_headers_within_words(width, monkeypatch):
    words = " ".join(printed(WIDE, width, monkeypatch)).split()
    assert {*" ".join([*NAMES, *CELLS]).split()} <= {*words}
    assert {word for name in HEADER for word in name.split()} - {"r", "r_mean", "r_read"} <= {*words}
    assert words.count("title") == words.count("note") == 1


def test_a_table_is_as_wide_as_the_console_that_prints_it(monkeypatch):
    before = vars(get_console()).copy()
    reconfigure(width=200)  # rich's console of its own, which keeps the width that the terminal had at first
    try:
        words = " ".join(printed(WIDE, 80, monkeypatch)).split()
    finally:
        vars(get_console()).update(before)
    assert {*" ".join([*NAMES, *CELLS]).split()} <= {*words}


def test_columns_that_say_nothing_new_make_room_first(monkeypatch):
    shown = {width: " ".join(" ".join(printed(WIDE, width, monkeypatch)).split()) for width in (200, 90, 80, 70, 60)}
    assert "r_read" in shown[200] and "not shown" not in shown[200]
    assert "not shown for want of room: r_read, in every" in shown[90] and "r_read, r_mean, in every" in shown[80]
    assert "not shown for want of room: r_read, r_mean, r, in every row the same as r_bytes" in shown[70]
    assert shown[60].count("Pooling-merge 0.2*") == 2  # parts, each with what a row is
    other = replace(WIDE, rows=[[*row[:4], "0.400", *row[5:]] for row in WIDE.rows])
    assert "r_mean" in " ".join(printed(other, 70, monkeypatch)).split("note")[0]


def test_every_row_of_a_markdown_table_has_its_columns():
    rows = [[name, name] for name in HOSTILE]
    lines = TextTable(["a|b", "c\nd"], rows).markdown().splitlines()
    assert len(lines) == len(rows) + 2
    assert {line.replace(r"\|", "").count("|") for line in lines} == {3}


MARKUP = (
    *("<i>c</i>", "a*b*", "**bold**", "`code`", "_x_", "r_bytes", "~~gone~~", "a &lt; b", "x & y", "<0.001", "x < y"),
    *(
        "[here](http://a.b)",
        "![x](y)",
        "[0.1, 0.2]",
        "a\\|b",
        "a|b",
        "\\*",
        "dir\\name",
        "0.2*",
        "* a note",
        "tab|le <x> & y_z",
    ),
)


def test_markdown_shows_names_and_notes_as_they_are():
    """A task `<i>c</i>` was an italic c, and the mark of a note the bullet of a list."""
    table = TextTable(["task", *MARKUP], [[name, *MARKUP] for name in MARKUP], "<b>title</b>", MARKUP)
    tokens = MarkdownIt("commonmark").enable("table").parse(table.markdown())
    texts = [token for token in tokens if token.type == "inline"]
    assert {child.type for token in texts for child in token.children} == {"text"}
    shown = ["".join(child.content for child in token.children) for token in texts]
    assert shown == ["<b>title</b>", "task", *MARKUP, *(cell for name in MARKUP for cell in (name, *MARKUP)), *MARKUP]
    assert [as_shown(as_text(name)) for name in MARKUP] == [*MARKUP]


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
