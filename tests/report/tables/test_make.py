"""Which records belong to a table, and how those are reported that do not fit together."""

import random
import shutil

import pandas as pd
import pytest
from transformers import PreTrainedModel

from kvbench.benchmarks import LongBench
from kvbench.configuration.conf import CONF, more_configuration
from kvbench.errors import UserError
from kvbench.papers.command_line import configurations
from kvbench.records.pack import write_pack
from kvbench.records.store import RECORDS
from kvbench.report.tables.make import make
from tests.support.made_runs import SMALL, drawn, known, make_runs, records_of, rows, table, write_run

pytestmark = pytest.mark.heavy


def test_missing_records_leave_a_gap_and_are_reported(tmp_path):
    def skip(setting, task, i):
        return setting.name != "full" and (task == "lcc" or i == 2)

    make_runs(tmp_path / "runs", SMALL, score=known, samples=3, skip=skip)
    text = table(tmp_path / "runs", SMALL)
    found = rows(text, "All columns")
    assert found["simlayerkv_paper"] == ["0.250", "0.500", "100.00†", "50.00†", "–", "–"]
    assert rows(text, "Average")["simlayerkv_paper"][2:4] == ["–", "27.3²,³"]
    assert "some records are missing: simlayerkv_paper 4 of 9 samples." in text
    # over the two samples that both have, FullKV has 50 on narrativeqa
    cells = pd.read_csv(tmp_path / "runs-tables" / "simlayerkv_table11.csv").set_index(["method", "column"])
    assert cells.loc[("simlayerkv_paper", "narrativeqa"), "versus_full"] == 50


def test_the_csv_has_the_runs_own_bytes_and_those_of_16_bits_which_tables_show(tmp_path):
    make_runs(tmp_path / "runs", SMALL, score=known, samples=3, r_bytes_16=0.75)
    assert rows(table(tmp_path / "runs", SMALL), "Average")["simlayerkv_paper"][1] == "0.750"
    cells = pd.read_csv(tmp_path / "runs-tables" / "simlayerkv_table11.csv").set_index(["method", "column"])
    assert cells.loc[("simlayerkv_paper", "lcc"), ["r_bytes", "r_bytes_16"]].tolist() == [0.5, 0.75]


def test_nothing_at_all_is_one_line_with_the_nearest_run_and_the_command(small, tmp_path):
    with pytest.raises(UserError) as error:
        make([SMALL, "question=hidden"], [str(small)])
    assert str(error.value) == (
        f"no records of simlayerkv_table11 in {small} (the nearest run, {small}/llama3-70b, differs in question); "
        "published=true shows the published values alone, and this command computes them: "
        "python -m kvbench +experiment=simlayerkv_table11 question=hidden"
    )
    with pytest.raises(UserError, match=r"computes them: python .* -m \+experiment=pyramidkv_table1 output_dir="):
        make(["+experiment=pyramidkv_table1", f"output_dir={tmp_path / 'none'}"])


def test_the_command_that_makes_missing_records_finds_ones_own_files(tmp_path):
    own = tmp_path / "mine" / "model"
    own.mkdir(parents=True)
    copied = (CONF / "model" / "llama3-8b.yaml").read_text().replace("name: llama3-8b", "name: of-mine")
    (own / "of-mine.yaml").write_text(copied)
    with more_configuration(own.parent), pytest.raises(UserError, match=f"model=of-mine .*--config-dir {own.parent}$"):
        make(["+experiment=pyramidkv_table1", "model=of-mine", f"output_dir={tmp_path / 'none'}"])


@pytest.mark.parametrize("change", [{"dtype": "torch.float32"}, {"device": "cpu"}, {"data_sha256": "0" * 64}])
def test_runs_that_differ_in_provenance_are_listed_and_one_is_chosen_by_its_folder(change, small, tmp_path):
    (cfg,) = configurations([SMALL])
    (first,) = small.iterdir()
    other = write_run(tmp_path / "other", cfg, records_of(cfg, known, 3, answers=[]), **change)
    with pytest.raises(UserError) as error:
        make([SMALL], [str(first), str(other)], str(tmp_path))
    message = str(error.value)
    assert (
        str(first) in message and str(other) in message and next(iter(change)) in message and "runs=FOLDER" in message
    )
    assert next(iter(change.values())).removeprefix("torch.")[:10] in message
    assert f"; {other.name}" in table(other, SMALL, out=tmp_path / "chosen")


def test_records_of_another_benchmark_model_protocol_or_parameter_are_left_out(tmp_path):
    for i, change in enumerate(["benchmark.max_length=4000", "model=llama3-8b", "question=hidden"]):
        (cfg,) = configurations([SMALL, change])
        write_run(tmp_path / f"runs/{i}", cfg, records_of(cfg, lambda *_: 1.0, 3))
    (cfg,) = configurations([SMALL, "method.simlayerkv_paper.sinks=8"])
    write_run(tmp_path / "runs/sinks", cfg, records_of(cfg, lambda *_: 1.0, 3))
    found = rows(table(tmp_path / "runs", SMALL), "All columns")
    assert found["full"][2] == "100.00"  # the same setting, whatever the other one's parameters
    assert found["simlayerkv_paper"][2] == "–"


def test_the_same_data_in_two_places_is_one_run_and_other_data_is_not(small, tmp_path):
    (cfg,) = configurations([SMALL, "benchmark.data_dir=elsewhere"])
    half = {"skip": lambda setting, task, i: setting.name == "full"}
    write_run(tmp_path / "runs/moved", cfg, records_of(cfg, known, 3, **half))
    assert rows(table(tmp_path / "runs", SMALL), "All columns")["simlayerkv_paper"][2] == "66.67"
    shutil.copytree(small / "llama3-70b", tmp_path / "runs/llama3-70b")
    text = table(tmp_path / "runs", SMALL)
    assert rows(text, "All columns") == rows(table(small, SMALL), "All columns")
    assert text.rstrip().endswith("; llama3-70b")  # each sample counts once, the same from wherever
    write_run(tmp_path / "runs/third", cfg, records_of(cfg, lambda *_: 0.0, 3), data_sha256="1" * 64)
    assert table(tmp_path / "runs", SMALL) == text  # the run of the exact configuration decides the data


def test_the_same_samples_with_other_scores_are_refused(small, tmp_path):
    (cfg,) = configurations([SMALL, "benchmark.data_dir=elsewhere"])
    write_run(tmp_path / "moved", cfg, records_of(cfg, lambda *_: 0.25, 3))
    with pytest.raises(UserError, match="records of the same samples and settings have different scores"):
        make([SMALL], [str(small), str(tmp_path)], str(tmp_path))


def test_damaged_lines_are_reported(small, tmp_path, capsys):
    shutil.copytree(small, tmp_path / "runs")
    (path,) = (tmp_path / "runs").rglob(RECORDS)
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:-1]) + lines[-1][:40])
    table(tmp_path / "runs", SMALL)
    assert "1 line of" in capsys.readouterr().err


def test_tables_do_not_depend_on_the_order_of_records_or_on_shards(tmp_path):
    overrides = "+experiment=pyramidkv_table2"
    (cfg,) = configurations([overrides])
    records = records_of(cfg, drawn, samples=4)
    write_run(tmp_path / "whole" / "run", cfg, records)
    random.Random(0).shuffle(records)
    for i in range(3):
        write_run(tmp_path / "parts" / "run", cfg, records[i::3], shard=f"{i}-of-3")
    made = {}
    for name in ("whole", "whole again", "parts"):
        out = tmp_path / f"{name} tables"
        make([overrides], [str(tmp_path / name.split()[0])], str(out))
        made[name] = {path.name: path.read_bytes() for path in sorted(out.iterdir())}
    assert made["whole"] == made["whole again"] == made["parts"]
    assert len(made["whole"]) == 3


def test_every_model_is_beside_its_own_published_values_where_each_has_a_file_of_them(tmp_path):
    overrides = ["+experiment=pyramidkv_fig4", "budget=[64,128]"]
    make_runs(tmp_path / "runs", *overrides, score=drawn, samples=1)
    make(overrides, [str(tmp_path / "runs")], str(tmp_path))
    cells = pd.read_csv(tmp_path / "pyramidkv_fig4.csv").set_index(["model", "method", "budget"])
    ours = cells["published"].xs(("pyramidkv_paper", 128), level=("method", "budget"))
    assert ours.to_dict() == {"llama3-8b": 37.25, "mistral-7b-v0.2": 35.72, "llama3-70b": 44.37}
    text = (tmp_path / "pyramidkv_fig4.md").read_text()
    assert "80 layers hold 163 tokens" in text and "32 layers hold 133.5 tokens" in text


def test_no_model_is_loaded_and_no_benchmark_built(small, monkeypatch):
    def never(*_, **__):
        raise AssertionError("a table is made from records alone")

    monkeypatch.setattr(PreTrainedModel, "from_pretrained", never)
    monkeypatch.setattr(LongBench, "__init__", never)
    assert "SimLayerKV Table 11" in table(small, SMALL)


def test_a_pack_has_the_table_of_its_run(small, tmp_path):
    (run,) = (path.parent for path in small.rglob(RECORDS))
    write_pack(run, tmp_path / "packs" / run.name)
    assert table(tmp_path / "packs", SMALL) == table(small, SMALL, out=tmp_path / "of-run")


def test_a_table_of_another_protocol_is_a_file_of_its_own(tmp_path):
    for change in ("question=visible", "question=hidden", "first_token=compressed"):
        make_runs(tmp_path / "runs" / change, SMALL, change, score=known, samples=3)
        table(tmp_path / "runs", SMALL, change, out=tmp_path / "tables")
    assert {path.name for path in (tmp_path / "tables").glob("*.md")} == {
        "simlayerkv_table11.md",
        "simlayerkv_table11-hidden.md",
        "simlayerkv_table11-compressed-first-token.md",
    }
