"""A run's table as LaTeX."""

from kvbench.report.tables.text_latex import text_latex
from kvbench.report.tables.text_table import TextTable


def test_a_table_is_a_float_with_its_title_rows_and_notes():
    rows = [["H2O & more", "0.2*", "–"], ["mean", "1", "2"]]
    text = text_latex(TextTable(["method", "95 % interval", "r_bytes"], rows, "needles, 50%", ["* less"], ["a", "b"]))
    assert text.splitlines() == [
        "% needs \\usepackage{booktabs,graphicx}",
        "\\begin{table}[tp]",
        "\\centering\\small",
        "\\caption{needles, 50\\%}",
        "\\resizebox{\\ifdim\\width>\\linewidth\\linewidth\\else\\width\\fi}{!}{%",
        "\\begin{tabular}{lrr}",
        "\\toprule",
        "method & 95 \\% interval & r\\_bytes \\\\",
        "\\midrule",
        "H2O \\& more & 0.2{*} & -- \\\\",
        "\\midrule",
        "mean & 1 & 2 \\\\",
        "\\bottomrule",
        "\\end{tabular}}",
        "",
        "{\\footnotesize {*} less\\par}",
        "\\end{table}",
    ]
