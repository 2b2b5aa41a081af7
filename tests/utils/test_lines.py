"""Texts in lines of the terminal's width: paragraphs and tables are broken anew, commands to copy never."""

from kvbench.utils.lines import columns, fitted, wrapped

TEXT = """A sentence that was written for a terminal
of another width. And one more.

verdicts:
  within           the whole interval is on the right side of
                   its limit
  within by score  short

examples:
  kvbench check my_method.MyMethod +method.granularity=kv_head ratio=0.2 budget=null"""
AT_50 = """A sentence that was written for a terminal of
another width. And one more.

verdicts:
  within           the whole interval is on the right side
                   of its limit
  within by score  short

examples:
  kvbench check my_method.MyMethod +method.granularity=kv_head ratio=0.2 budget=null"""


def test_paragraphs_and_tables_fit_and_commands_stay_whole():
    wide = fitted(TEXT, 120).splitlines()
    assert wide[0] == "A sentence that was written for a terminal of another width. And one more."
    assert wide[3] == "  within           the whole interval is on the right side of its limit"
    assert wide[-1] == TEXT.splitlines()[-1]
    narrow = fitted(TEXT, 60)
    assert [line for line in narrow.splitlines() if len(line) > 60] == [TEXT.splitlines()[-1]]
    assert fitted(narrow, 120) == "\n".join(wide)
    assert fitted(TEXT, 50) == AT_50  # what is beside a name has at least 40 characters


def test_lines_are_of_the_terminals_width(monkeypatch):
    monkeypatch.setenv("COLUMNS", "77")
    assert columns() == 77
    assert wrapped("a-b " * 30, 10)[0] == ("a-b " * 10).strip()
