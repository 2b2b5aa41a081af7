"""The command of tables, its files, and the published data that they stand beside."""

import json
import re
import shutil
import subprocess

import pytest
from omegaconf import OmegaConf

from kvbench.configuration.conf import CONF
from kvbench.errors import UserError
from kvbench.evaluation.settings import build_settings, settings_of
from kvbench.papers.columns import Column, columns
from kvbench.papers.command_line import configurations
from kvbench.papers.comparison import value_of_column, values_of_row
from kvbench.papers.experiment import names
from kvbench.papers.published import errata, items, published
from kvbench.records.store import RECORDS
from kvbench.report.tables.command import main
from kvbench.report.tables.make import make
from kvbench.report.tables.paper.latex import escape
from tests.support.command import kvbench
from tests.support.made_runs import SMALL, drawn, make_runs, rows, table
from tests.support.needs import need
from tests.support.paths import DATA
from tests.support.runs import run

pytestmark = pytest.mark.heavy

# The published data of other experiments


@pytest.mark.parametrize(
    ("name", "apart"),  # figures that no cell is compared with
    [
        ("pyramidkv_table2", {"memory_mb", "kv_share"}),  # arithmetic on the budget
        ("pyramidkv_table4", {}),
        ("simlayerkv_table3", {}),
        ("simlayerkv_table10", {}),
        ("simlayerkv_table12", {}),
        ("spindlekv_table2", {}),
        ("spindlekv_table5", {}),
        ("spindlekv_table8", {}),
    ],
)
def test_every_published_figure_is_met_by_a_cell(name, apart):
    (cfg,) = configurations([f"+experiment={name}"])
    experiment = cfg.experiment
    figures = published(experiment.published)
    shown = columns(experiment.columns, cfg.benchmark, cfg.benchmark)
    again = ["method", "column", "printed"]  # what is printed again for another setting
    met = set()
    for setting in settings_of(cfg):
        for length in cfg.benchmark["lengths"] if name == "simlayerkv_table3" else [None]:
            row = values_of_row(figures, experiment, cfg.model.name, setting, length)
            found = [figure for column in shown if (figure := value_of_column(row, column)) is not None]
            met |= {tuple(figure[name] for name in again) for figure in found}
    assert met == {tuple(figure[again]) for _, figure in figures.iterrows() if figure["column"] not in apart}


def test_a_method_that_fits_several_figures_is_reported():
    (cfg,) = configurations(["+experiment=pyramidkv_table4", "experiment.methods.pyramidkv_w16=pyramidkv"])
    experiment, figures = cfg.experiment, published("pyramidkv_table4")
    setting = next(s for s in build_settings(cfg.methods, None, 128) if s.name == "pyramidkv_w16")
    row = values_of_row(figures, experiment, "llama3-8b", setting)
    with pytest.raises(
        UserError, match="several published values of pyramidkv's Table 4 fit the method 'pyramidkv' in qasper"
    ):
        value_of_column(row, Column("qasper", ("qasper",)))


# LaTeX


def test_latex_prints_all_that_experiments_and_errata_say():
    texts = [text for item in items() for text in errata(item)["text"]]
    for path in (CONF / "experiment").glob("*.yaml"):
        node = OmegaConf.load(path).experiment
        texts += [node.about, *node.get("chosen", ())]
    assert len(texts) > 300
    for text in texts:
        assert escape(text).isascii(), text


def test_latex_is_balanced_and_compiles_where_latex_is_installed(tmp_path):
    overrides = "+experiment=pyramidkv_table2"
    make_runs(tmp_path / "runs", overrides, score=drawn)
    text = table(tmp_path / "runs", overrides, ending="tex")
    bare = re.sub(r"\\.", "", text)
    assert bare.count("{") == bare.count("}")
    assert bare.count("$") % 2 == 0
    assert re.findall(r"\\begin{(.*?)}", text) == ["table*", "tabular"] * 2
    for tabular in re.findall(r"\\begin{tabular}{(.*?)}\n(.*?)\\end{tabular}", text, re.DOTALL):
        for line in tabular[1].splitlines():
            if line.endswith(r"\\") and "multicolumn" not in line:
                assert len(re.findall(r"(?<!\\)&", line)) + 1 == len(tabular[0])
    need("latex", "" if shutil.which("pdflatex") else "what goes before holds; pdflatex is not installed")
    document = "\\documentclass{article}\n\\usepackage{booktabs,graphicx}\n\\begin{document}\n%s\\end{document}\n"
    (tmp_path / "table.tex").write_text(document % text)
    made = subprocess.run(["pdflatex", "-halt-on-error", "table.tex"], cwd=tmp_path, capture_output=True, text=True)
    assert made.returncode == 0, made.stdout[-800:]


# The command


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["+experiment=pyramidkv_tabel1"], "unknown experiment 'pyramidkv_tabel1'. Did you mean 'pyramidkv_table1'?"),
        ([], "name an experiment: +experiment=NAME. Allowed: "),
        (["+experiment=spindlekv_fig3"], "spindlekv_fig3 has no scores (layers): kvbench figure draws it"),
        *(
            (
                [f"+experiment={name}"],
                f"{name} has no scores (speed): kvbench figure draws it, and each of its runs writes ",
            )
            for name in ("spindlekv_table9", "pyramidkv_memory")
        ),
        ([SMALL, "runs=nowhere"], "runs=nowhere is not a folder"),
        (
            [SMALL, "output_dir=nowhere"],
            "no records of simlayerkv_table11 in nowhere; published=true shows the published values",
        ),
        ([SMALL, "nothing=1"], "unknown key 'nothing'"),
    ],
)
def test_a_mistake_is_one_line(arguments, message, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert kvbench("table", *arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"kvbench: {message}") and error.count("\n") == 1


def test_help_names_every_experiment(capsys):
    assert kvbench("table", "--help") == 0
    said = capsys.readouterr().out
    assert all(f"  {name} " in said for name in names())


def test_a_wide_table_fits_a_terminal_of_120_columns(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "120")
    overrides = "+experiment=pyramidkv_table8"
    make_runs(tmp_path / "runs", overrides, score=drawn, samples=2)
    main([overrides, f"runs={tmp_path / 'runs'}", f"out={tmp_path / 'out'}"])
    said = capsys.readouterr().out
    drawn_part = said[: said.index("r: reserve ratio")]
    assert "…" not in drawn_part  # rich's mark for what it cut
    assert max(map(len, drawn_part.splitlines())) <= 120
    for name in ("NrtvQA", "RB-P", "average"):
        assert name in drawn_part


def test_a_real_run_of_an_experiment_becomes_a_table(tiny_folder, tmp_path):
    overrides = [
        "+experiment=pooling_merge_table2",
        "model=smollm2-135m",
        f"model.path={tiny_folder}",
        "model.shape=null",
        f"benchmark.data_dir={DATA / 'longbench'}",
        "benchmark.tasks=[qasper,trec]",
        "benchmark.max_length=256",
        "limit=2",
        f"output_dir={tmp_path}",
    ]
    folder = run(*overrides)
    (path, *_) = make(overrides)
    assert path == tmp_path / "tables" / "pooling_merge_table2-smollm2-135m.md"
    text = path.read_text()
    assert "Scaled down: smollm2-135m in place of llama3-8b; at most 2 samples of a task;" in text
    assert "2 samples: 1 each of qasper, trec." in text and folder.name in text
    found = rows(text, "All columns")
    assert list(found)[2:] == [
        "full –",
        *(f"{name} 64" for name in ("pyramidkv_paper_streaming_llm", "pyramidkv_paper_h2o", "pooling_merge")),
    ]
    records = [json.loads(line) for line in (folder / RECORDS).read_text().splitlines()]
    for method, cells in found.items():
        by_task = {r["task"]: r["scores"]["score"] for r in records if r["method"] == method.split(" ")[0]}
        if by_task:
            assert [cell.strip("*†") for cell in cells[2:]] == [f"{100 * score:.2f}" for score in by_task.values()]


def test_files_are_written_before_anything_is_printed(tmp_path, monkeypatch):
    """A terminal that goes away costs what it would have shown, and no file."""
    make_runs(tmp_path / "runs", SMALL, score=drawn)

    def gone(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("kvbench.report.tables.make.show", gone)
    with pytest.raises(KeyboardInterrupt):
        make([SMALL], [str(tmp_path / "runs")], str(tmp_path / "out"))
    names = ("simlayerkv_table11.csv", "simlayerkv_table11.md", "simlayerkv_table11.tex")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(names)
