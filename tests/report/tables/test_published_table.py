"""The published values by themselves, without records."""

from dataclasses import replace

import pytest

from kvbench.configuration import Experiment
from kvbench.errors import UserError
from kvbench.papers.command_line import configurations
from kvbench.papers.published import published
from kvbench.report.tables.command import main
from kvbench.report.tables.published_table import SOURCE, published_tables
from kvbench.report.tables.text_table import MISSING

pytestmark = pytest.mark.heavy

LLAMA3 = ("llama3-8b", "llama3-70b")
THREE = ("llama2-7b-chat", "llama3-8b", "mistral-7b-v0.2")


def experiment(name: str) -> Experiment:
    return configurations([f"+experiment={name}"])[0].experiment


def test_rows_and_columns_are_those_of_the_paper_with_its_known_errors():
    *_, last = tables = published_tables([experiment("pyramidkv_table2")])
    assert last.notes[0] == SOURCE
    assert any("FullKV has 23.03 on qmsum" in note for note in last.notes)
    assert all(len(row) == len(table.header) for table in tables for row in table.rows)
    (table,) = published_tables([experiment("pyramidkv_table1")], ["llama3-8b"])
    assert table.title == "PyramidKV Table 1, as published · llama3-8b"
    assert table.header[:3] == ["row · setting", "narrativeqa", "qasper"]
    assert table.rows[0][:3] == ["FKV · Full", "25.70", "29.75"]


def test_methods_that_share_a_line_of_the_paper_have_a_row_each():
    (table, *_) = published_tables([experiment("pyramidkv_table11")])
    assert table.header == ["method · setting", "needle"]
    assert table.rows[:4] == [
        ["full · 64", "100.00"],
        ["pyramidkv · 64", "80.50"],
        ["snapkv · 64", "43.90"],
        ["h2o · 64", "48.40"],
    ]


@pytest.mark.parametrize("item", ["pyramidkv_table7", "simlayerkv_table2", "simlayerkv_table7", "spindlekv_table10"])
def test_tables_have_every_published_value_and_each_known_error_once(item):
    tables = published_tables([replace(experiment("pyramidkv_table11"), published=item)])
    cells = [cell for table in tables for row in table.rows for cell in row[1:] if cell != MISSING]
    assert sorted(cells) == sorted(published(item)["printed"])
    assert len(set(tables[-1].notes)) == len(tables[-1].notes)


@pytest.mark.parametrize(
    ("name", "titles"),
    [
        ("pyramidkv_fig10", [f"Table 11, as published · {model}" for model in ("mistral-7b-v0.2", *LLAMA3)]),
        ("spindlekv_fig5", [f"Table {n}, as published · {m}" for n, m in zip((11, 10, 1), THREE, strict=True)]),
    ],
)
def test_a_title_names_the_table_that_prints_the_values_and_every_model_of_a_figure_has_its_own(name, titles, capsys):
    main([f"+experiment={name}", "published=true"])
    shown = [line.strip() for line in capsys.readouterr().out.splitlines() if "as published" in line]
    assert [title.partition(" ")[2] for title in shown] == titles


def test_the_command_prints_them_and_writes_nothing(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    main(["+experiment=pyramidkv_table1", "model=llama3-8b", "published=true"])
    printed = capsys.readouterr().out
    assert "as published · llama3-8b" in printed and "29.75" in printed and SOURCE in printed
    assert "Cost: 33,750 records (9 settings × 3,750 samples)" in printed
    assert not list(tmp_path.iterdir())


def test_what_is_not_published_is_one_line():
    with pytest.raises(UserError, match="only prints: leave runs= and out= out"):
        main(["+experiment=pyramidkv_table1", "published=true", "runs=a", "out=b"])
    with pytest.raises(UserError, match="published=yes: published=true prints the published values alone"):
        main(["+experiment=pyramidkv_table1", "published=yes"])
    with pytest.raises(UserError, match="PyramidKV Table 1 has no model smollm2-135m: llama3-8b"):
        main(["+experiment=pyramidkv_table1", "model=smollm2-135m", "published=true"])
    with pytest.raises(UserError, match=r"prints no numbers in Figure 2\. Cost: 1 record \(1 setting × 1 sample\)"):
        main(["+experiment=pyramidkv_fig2", "published=true"])
