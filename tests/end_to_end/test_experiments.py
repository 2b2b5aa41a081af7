"""Experiments made for real at toy scale: their records, tables, figures and what their captions say."""

import json
import sys
from pathlib import Path

import pytest

from kvbench import __main__ as command
from kvbench.papers.experiment import load
from kvbench.records import load as load_records
from kvbench.runner import run as main
from tests.support.paths import DATA

ROWS = DATA / "longbench"


def toy(tiny_folder: Path, out: Path, *more: str) -> list[str]:
    return [
        "model=smollm2-135m",
        f"model.path={tiny_folder}",
        "model.shape=null",
        "model.max_length=4096",
        f"output_dir={out}",
        *more,
    ]


def longbench(tasks: str, length: int) -> list[str]:
    return [f"benchmark.data_dir={ROWS}", f"benchmark.tasks=[{tasks}]", f"benchmark.max_length={length}", "limit=1"]


def caption(folder: Path) -> str:
    return (folder / "table.md").read_text(encoding="utf-8").splitlines()[0]


def test_a_longbench_table(tiny_folder, tmp_path):
    """Every method at its own ratios, and a caption that leaves no doubt what was run."""
    folder = main.run(load("spindlekv_table1", *toy(tiny_folder, tmp_path, *longbench("2wikimqa", 120))))
    records = load_records(folder)
    assert len(records) == 16
    asked = records.groupby("method")["ratio"].agg(set).to_dict()
    assert asked["spindlekv_paper"] == {0.401, 0.302, 0.252, 0.2, 0.148}
    assert asked["pyramidkv_paper"] == {0.405, 0.314, 0.257, 0.205, 0.15}
    assert caption(folder).startswith(
        "SpindleKV Table 1, scaled down: smollm2-135m in place of mistral-7b-v0.2; at most 1 sample of a task; "
        "tasks 2wikimqa; max_length 120, changed: data from longbench; "
        f"weights from {tiny_folder.name} · longbench · smollm2-135m (float32)"
    )
    (path,) = (folder / "manifests").iterdir()
    config = json.loads(path.read_text())["config"]
    assert config["experiment"]["item"] == "Table 1"
    assert config["limit"] == 1 and config["benchmark"]["max_length"] == 120


def test_a_heatmap_of_needles(rendered, tiny_folder, tmp_path):
    small = ["benchmark.lengths=[400,600]", "benchmark.depths=[0,100]", "benchmark.max_new_tokens=4"]
    own = ["benchmark.haystack_dir=null", "benchmark.needle_file=null"]
    folder = main.run(load("pyramidkv_fig5", *toy(tiny_folder, tmp_path, *small, *own)))
    records = load_records(folder)
    assert set(records["setting"]) == {
        "full",
        "pyramidkv_paper 128",
        "pyramidkv_paper_snapkv_niah 128",
        "pyramidkv_paper_h2o_niah 128",
    }
    assert len(records) == 4 * 4
    assert (folder / "heatmap.png").stat().st_size > 0
    assert "; lengths 400, 600; depths 0, 100, changed: without haystack_dir; without needle_file;" in caption(folder)


def test_rulers_table(tiny_folder, tmp_path):
    small = ["benchmark.lengths=[1200]", "benchmark.tasks=[vt,fwe]", "benchmark.num_samples=2"]
    folder = main.run(load("simlayerkv_table3", *toy(tiny_folder, tmp_path, *small, "limit=1")))
    records = load_records(folder)
    assert records["task"].unique().tolist() == ["vt", "fwe"]
    assert set(records["method"]) == {"full", "minicache_simlayerkv", "simlayerkv_paper"}
    assert "SimLayerKV Table 3, scaled down:" in caption(folder) and "lengths 1200" in caption(folder)


def test_one_method_under_several_values_of_a_parameter(tiny_folder, tmp_path):
    folder = main.run(load("pyramidkv_table4", *toy(tiny_folder, tmp_path, *longbench("2wikimqa", 200))))
    records = load_records(folder)
    windows = {row["method"]: json.loads(row["parameters"])["scoring"]["window"] for row in records.to_dict("records")}
    assert windows == {"pyramidkv_paper": 8} | {f"pyramidkv_w{window}": window for window in (16, 24, 32, 40, 48)}
    assert records["r"].lt(1).all() and records["budget"].eq(128).all()


def test_the_embedded_model_makes_an_experiment(tmp_path):
    # the published prompts are raw text, after which this model may end its answer at once
    short = ["model=smollm2-135m", "model.chat_template=auto", f"output_dir={tmp_path}", *longbench("2wikimqa", 150)]
    folder = main.run(load("simlayerkv_table10", *short))
    records = load_records(folder).set_index("setting")
    assert set(records.index) == {"squeeze 0.54", "simlayerkv_paper"}
    assert records["r"]["squeeze 0.54"] == pytest.approx(0.54, abs=0.01)
    assert records["prediction"].str.len().gt(0).all()
    assert caption(folder).startswith("SimLayerKV Table 10, scaled down: smollm2-135m in place of llama3-8b; at most 1")


def in_process(arguments, monkeypatch, capsys) -> tuple[int, str]:
    monkeypatch.setattr(sys, "argv", ["kvbench", *arguments])
    monkeypatch.setenv("HYDRA_FULL_ERROR", "0")
    monkeypatch.setenv("COLUMNS", "200")
    try:
        command.main()
        code = 0
    except SystemExit as stopped:
        code = stopped.code
    return code, capsys.readouterr().err


def test_the_command_with_m_makes_a_run_per_model_and_other_models_on_request(
    tiny_folder,
    tmp_path,
    monkeypatch,
    capsys,
):
    """Hydra's sweep over the models that an experiment lists gives way to models on the command line."""
    arguments = toy(tiny_folder, tmp_path, *longbench("2wikimqa", 100), "method=[full]")
    arguments[0] = "model=smollm2-135m,qwen2.5-3b"
    code, told = in_process(["-m", "+experiment=spindlekv_fig5", *arguments], monkeypatch, capsys)
    assert code == 0, told
    folders = sorted(folder for folder in tmp_path.iterdir() if folder.is_dir())
    assert [folder.name.rsplit("-", 1)[0] for folder in folders] == ["longbench-qwen2.5-3b", "longbench-smollm2-135m"]
    for folder in folders:
        assert "SpindleKV Figure 5, scaled down: " in caption(folder)
        assert "without pyramidinfer; without pyramidkv_paper; without spindlekv_paper" in caption(folder)


@pytest.mark.parametrize(
    "arguments, told",
    [
        (["+experiment=spindlekv_table12"], "unknown experiment 'spindlekv_table12'. Did you mean 'spindlekv_table"),
        (["experiment=spindlekv_table1"], "an experiment is added with a plus: +experiment=spindlekv_table1"),
        (["+experiment=spindlekv_table1", "experiment.show=tabel"], "unknown experiment.show 'tabel'"),
        (["+experiment=spindlekv_table1", "experiment.itm=1"], "unknown key 'itm'. Did you mean 'item'?"),
        (["+experiment=pyramidkv_fig5", "benchmark.lengths=[64]"], "64 must be an integer of at least 300"),
    ],
)
def test_a_mistake_is_one_line(arguments, told, monkeypatch, capsys, tmp_path):
    code, error = in_process([*arguments, f"output_dir={tmp_path}"], monkeypatch, capsys)
    assert code == 2
    assert told in error and error.strip().count("\n") == 0
    assert not list(tmp_path.iterdir())
