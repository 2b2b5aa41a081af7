"""Methods × tasks as LaTeX: groups of one budget, the best in bold, real minus signs."""

import math

import pandas as pd

from kvbench.report.tables.task_latex import task_latex
from kvbench.report.tables.task_table import of_one

NONE = math.nan
SETTINGS = [
    ("full", "full", NONE, "", 1.0, False),
    ("kivi", "kivi", NONE, "", 0.3, False),
    ("snapkv 0.2", "snapkv", 0.2, "ratio", 0.2, False),
    ("h2o 0.2", "h2o", 0.2, "ratio", 0.2, False),
    ("lagkv 0.2", "lagkv", 0.2, "ratio", 0.4, True),
    ("snapkv 64", "snapkv", 64, "budget", 0.1, False),
]
SUMMARY = pd.DataFrame(SETTINGS, columns=["setting", "method", "requested", "request", "r_bytes", "floored"]).assign(
    bytes="r_bytes", lacking=0
)
NAMES = [name for name, *_ in SETTINGS]


def breakdown(*rows):
    made = [
        {"kind": kind, "task": task, "samples": 2} | dict(zip(NAMES, values, strict=True))
        for kind, task, values in rows
    ]
    return of_one(pd.DataFrame(made))


FRAME = breakdown(
    ("task", "qa_en", (50, 40, 20, 30, 45, 10)),
    ("task", "code & more", (50, 40, 20, 20, 45, -1.5)),
    ("average", "average", (50, 40, NONE, 25, 45, 4.25)),
    ("length", "effective length", (512, 512, 128, 256, 512, 128)),
)


def lines():
    return task_latex(FRAME, SUMMARY, "ruler, 50%", "ruler_tiny-1f").splitlines()


def test_rows_stand_by_budget_and_only_what_is_compared_is_bold():
    made = lines()
    start, end = made.index("\\toprule"), made.index("\\bottomrule")
    assert made[start + 1 : end] == [
        "method & r\\_bytes & qa\\_en & code \\& more & average & effective length \\\\",
        "\\midrule",
        "FullKV & 1.000 & 0.5000 & 0.5000 & 0.5000 & 512.00 \\\\",
        "\\midrule",
        "KIVI & 0.300 & 0.4000 & 0.4000 & 0.4000 & 512.00 \\\\",
        "\\midrule",
        "\\multicolumn{6}{l}{\\textit{ratio 0.2}} \\\\",
        "SnapKV & 0.200 & 0.2000 & 0.2000 & -- & 128.00 \\\\",
        "H2O & 0.200 & \\textbf{0.3000} & 0.2000 & 0.2500 & 256.00 \\\\",
        "LagKV{*} & 0.400 & 0.4500 & 0.4500 & 0.4500 & 512.00 \\\\",
        "\\midrule",
        "\\multicolumn{6}{l}{\\textit{budget 64}} \\\\",
        "SnapKV & 0.100 & 0.1000 & $-$0.0150 & 0.0425 & 128.00 \\\\",
    ]


def test_the_float_has_a_label_a_caption_and_whole_environments():
    text = "\n".join(lines())
    assert "\\label{tab:ruler-tiny-1f}" in text and "\\caption{ruler, 50\\%. Bold: the best" in text
    for name in ("table*", "tabular"):
        assert text.count(f"\\begin{{{name}}}") == text.count(f"\\end{{{name}}}") == 1
    assert text.count("{") == text.count("}")
    columns = text.partition("\\begin{tabular}{")[2].partition("}")[0]
    assert columns == "lrrrrr"


def test_a_method_twice_in_a_group_has_the_names_of_its_settings():
    twice = SUMMARY.assign(method=["full", "kivi", "snapkv", "snapkv", "lagkv", "snapkv"])
    text = task_latex(FRAME, twice, "caption", "run")
    assert "\nSnapKV 0.2 & " in text and "\nH2O 0.2 & " in text


def test_a_setting_may_be_named_self():
    frame = of_one(pd.DataFrame([{"kind": "task", "task": "qa_en", "samples": 2, "self": 50.0}]))
    assert frame["self"].tolist() == [0.5]


def test_a_budget_of_one_token_is_no_ratio():
    alike = SUMMARY.assign(requested=[NONE, NONE, 1, 1, 1, 1])
    made = task_latex(FRAME, alike, "caption", "run").splitlines()
    headings = [made.index(f"\\multicolumn{{6}}{{l}}{{\\textit{{{asked} 1}}}} \\\\") for asked in ("ratio", "budget")]
    assert made[headings[0] + 1].startswith("SnapKV & 0.200") and made[headings[1] + 1].startswith("SnapKV & 0.100")


def test_a_table_of_settings_with_different_samples_says_so():
    uneven = task_latex(FRAME, SUMMARY.assign(lacking=[0, 0, 1, 0, 0, 0]), "ruler", "run")
    assert "Settings have different samples: compare only settings over the same samples." in uneven
    assert "different samples" not in task_latex(FRAME, SUMMARY, "ruler", "run")
