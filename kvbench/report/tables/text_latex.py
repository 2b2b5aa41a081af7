"""A run's table as LaTeX, for documents with the package booktabs."""

import re

from kvbench.report.tables.paper.latex import escape
from kvbench.report.tables.text_table import TextTable


def text_latex(table: TextTable) -> str:
    """A float with the table; its title is the caption, its notes stand below."""
    alignment = "l" + "r" * (len(table.header) - 1)
    rows = []
    for i, row in enumerate(table.rows):
        if i and table.sections and table.sections[i] != table.sections[i - 1]:
            rows.append("\\midrule")
        rows.append(_row(row))
    return "\n".join(
        [
            "% needs \\usepackage{booktabs}",
            "\\begin{table}[t]",
            "\\centering\\small",
            f"\\caption{{{escape(table.title)}}}",
            f"\\begin{{tabular}}{{{alignment}}}",
            "\\toprule",
            _row(table.header),
            "\\midrule",
            *rows,
            "\\bottomrule",
            "\\end{tabular}",
            *(f"\n{{\\footnotesize {escape(note)}\\par}}" for note in table.notes),
            "\\end{table}",
            "",
        ]
    )


def _row(cells: list[str]) -> str:
    name, *numbers = cells
    return " & ".join(map(escape, [name, *map(with_minus, numbers)])) + " \\\\"


def with_minus(text: str) -> str:
    """Numbers with a minus sign instead of a hyphen."""
    return re.sub(r"(?<![\w.])-(?=\d)", "−", text)
