"""Whole runs of the command: resuming after a kill, sharing a prefill, manifests, figures."""

import json
import shutil
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import pandas as pd
import pytest

from kvbench.benchmarks import NeedleInAHaystack
from kvbench.configuration import configured
from kvbench.errors import UserError
from kvbench.records import load
from kvbench.runner.outputs import model_name
from tests.support.runs import arguments, comparable, reported, run

pytestmark = pytest.mark.heavy


def test_a_run_makes_a_record_per_sample_and_setting(undisturbed):
    records = load(undisturbed)
    assert len(records) == 3 * 9  # FullKV once, four methods at two ratios
    assert records["key"].is_unique
    full = records[records.method == "full"]
    assert (full.r == 1).all()
    assert (full.r_bytes == 1).all()
    for ratio, group in records.groupby("ratio"):
        assert group.r_bytes.between(ratio - 0.01, ratio + 0.001).all()
    assert (records.stored_bytes == (records.r_bytes * records.full_bytes).round()).all()
    assert records.nominal_per_layer.map(len).eq(3).all()


def test_a_run_leaves_its_table_figure_and_manifest(undisturbed):
    for name in ("table.csv", "table.md", "table.tex", "differences.csv", "heatmap.png", "heatmap.pdf"):
        assert (undisturbed / name).stat().st_size > 0
    assert all("difference from FullKV" in (undisturbed / name).read_text() for name in ("table.md", "table.tex"))
    assert len(pd.read_csv(undisturbed / "differences.csv")) == 9 * 8 / 2
    (path,) = (undisturbed / "manifests").iterdir()
    manifest = json.loads(path.read_text())
    assert manifest["status"] == "finished"
    assert manifest["records"] == 27
    assert manifest["config"]["ratio"] == [0.2, 0.5]
    assert len(manifest["model"]["files"]["model.safetensors"]) == 64
    assert len(manifest["data_sha256"]) == 64
    assert manifest["packages"]["torch"] == version("torch")  # `torch.__version__` names the build as well
    assert manifest["hardware"]["cpu"]
    assert manifest["run"] == load(undisturbed)["run"][0]


def test_the_same_command_again_makes_nothing_and_reports_again(undisturbed, tiny_folder, tmp_path, capsys):
    folder = Path(shutil.copytree(undisturbed, tmp_path / undisturbed.name))
    before = (folder / "records.jsonl").read_bytes()
    (folder / "table.md").unlink()
    assert reported(*arguments(tiny_folder, tmp_path)) == folder
    assert (folder / "records.jsonl").read_bytes() == before
    assert (folder / "table.md").exists()
    assert "27 of 27 records already exist" in capsys.readouterr().err


@pytest.mark.heavy
def test_more_methods_reuse_what_is_there_and_a_table_shows_all_of_it(tiny_folder, tmp_path):
    few = reported(*arguments(tiny_folder, tmp_path, "method=[full,snapkv]", "ratio=0.2"))
    first = load(few)
    more = reported(*arguments(tiny_folder, tmp_path, "method=[snapkv,h2o]", "ratio=0.2"))
    assert more == few
    assert len(load(more)) == len(first) + 3
    table, differences = (more / "table.md").read_text().split("difference from FullKV")
    assert [line.split("|")[1].strip() for line in differences.splitlines() if " 0.2 " in line] == [
        *("SnapKV 0.2", "H2O 0.2")
    ]
    assert [line.split("|")[1].strip() for line in table.splitlines() if " – " in line or " 0.2 " in line] == [
        *("FullKV", "SnapKV", "H2O")
    ]
    assert "3 samples" in table and "different samples" not in table
    fewer = reported(*arguments(tiny_folder, tmp_path, "method=streaming_llm", "ratio=0.2", "limit=1"))
    table = (fewer / "table.md").read_text().split("difference from FullKV")[0]
    assert fewer == more and "3 samples" in table and "different samples" in table
    for method, samples in (("FullKV", 3), ("SnapKV", 3), ("H2O", 3), ("StreamingLLM", 1)):
        (row,) = [line for line in table.splitlines() if line.startswith(f"| {method} ")]
        assert f"| {samples} |" in row


@pytest.mark.heavy
def test_a_changed_configuration_never_mixes_into_old_records(tiny_folder, tmp_path):
    folders = {
        reported(*arguments(tiny_folder, tmp_path, "method=full", *change))
        for change in ([], ["benchmark.depths=[0,50]"], ["model.chat_template=none"], ["model.dtype=bfloat16"])
    }
    assert len(folders) == 4
    same = reported(*arguments(tiny_folder, tmp_path, "method=streaming_llm", "ratio=0.2"))
    other = reported(
        *arguments(tiny_folder, tmp_path, "method=streaming_llm", "ratio=0.2", "method.streaming_llm.sinks=8")
    )
    assert same == other in folders
    assert load(other).groupby("parameters").size().tolist() == [3, 3, 3]  # full, and each number of sinks
    table = (other / "table.md").read_text()
    assert "FullKV" in table and "| StreamingLLM (sinks=4) |" in table
    assert {"streaming_llm 0.2 (sinks=4)", "streaming_llm 0.2 (sinks=8)"} <= {*pd.read_csv(other / "table.csv").setting}


@pytest.mark.heavy
def test_changed_weights_get_a_folder_of_their_own(tiny_folder, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(tiny_folder, copy)
    first = run(*arguments(copy, tmp_path, "method=full", "limit=1"))
    from safetensors.torch import load_file, save_file

    weights = load_file(copy / "model.safetensors")
    weights["model.norm.weight"] *= 2
    save_file(weights, copy / "model.safetensors", metadata={"format": "pt"})
    assert run(*arguments(copy, tmp_path, "method=full", "limit=1")) != first


@pytest.mark.heavy
def test_shared_prefill_gives_the_records_of_each_setting_run_alone(undisturbed, tiny_folder, tmp_path):
    for method in ("streaming_llm", "h2o", "snapkv", "pyramidkv"):
        folder = run(*arguments(tiny_folder, tmp_path, f"method={method}", "ratio=0.5"))
    alone = {row["key"]: row for row in comparable(folder)}
    shared = {row["key"]: row for row in comparable(undisturbed) if row["ratio"] == 0.5}
    assert len(alone) == 12
    assert alone == shared


def test_a_sample_too_long_for_the_model_is_named_and_earlier_records_stay(tiny_folder, tmp_path, monkeypatch):
    from kvbench.benchmarks import NeedleInAHaystack
    from kvbench.errors import UserError

    monkeypatch.setattr(NeedleInAHaystack, "longest", property(lambda self: 1))
    with pytest.raises(UserError, match=r"sample 'number-500-0-0' has \d+ tokens; smollm2-135m takes at most 344"):
        run(*arguments(tiny_folder, tmp_path, "method=full", "model.max_length=350", "benchmark.lengths=[320,500]"))
    (folder,) = tmp_path.iterdir()
    assert len(load(folder)) == 3
    (manifest,) = (folder / "manifests").iterdir()
    assert json.loads(manifest.read_text())["status"] == "stopped by UserError"


@pytest.mark.heavy
def test_the_embedded_model_finds_its_needle_and_methods_differ(tmp_path):
    folder = run("benchmark.lengths=[512]", "benchmark.depths=[30]", "ratio=0.1", f"output_dir={tmp_path}")
    exact = {row["method"]: row["scores"]["exact"] for row in load(folder).to_dict("records")}
    assert exact["full"] == 1
    assert exact["streaming_llm"] == 0
    assert load(folder)["prediction"].nunique() > 2


def test_a_method_of_ones_own_runs_beside_the_chosen_ones(tiny_folder, tmp_path):
    mine = [
        "method=[full,snapkv]",
        "method._target_=tests.support.my_method.MyMethod",
        "+method.granularity=query_head",
        "ratio=0.5",
    ]
    records = load(run(*arguments(tiny_folder, tmp_path, *mine)))
    assert records["setting"].unique().tolist() == ["full", "snapkv 0.5", "MyMethod 0.5"]
    assert json.loads(records["parameters"].iloc[-1])["granularity"] == "query_head"


def test_a_caption_names_the_folder_that_the_weights_are_from(undisturbed, tiny_folder):
    assert f" · smollm2-135m from {tiny_folder.name} (float32) · " in (undisturbed / "table.md").read_text()


def test_a_caption_names_a_folder_without_a_preset_once():
    spec = configured(["method=full", "model=/models/tuned"]).model
    assert model_name(spec) == "tuned"
    assert model_name(replace(spec, hub_id="org/base", name="base")) == "base from tuned"


def test_samples_may_come_from_a_generator_but_there_have_to_be_some(tiny_folder, tmp_path, monkeypatch):
    """A generator that was read for the hash had none left to run: the run ended well, with no records."""
    samples = NeedleInAHaystack.samples
    given = arguments(tiny_folder, tmp_path, "method=full", "benchmark.depths=[50]")
    monkeypatch.setattr(NeedleInAHaystack, "samples", lambda *made_of: (sample for sample in samples(*made_of)))
    assert len(load(run(*given))) == 1
    for nothing in ([], None):  # None: a function without its return, which was a traceback
        monkeypatch.setattr(NeedleInAHaystack, "samples", lambda *made_of, nothing=nothing: nothing)
        with pytest.raises(UserError, match="benchmark niah has made no samples"):
            run(*given)
    monkeypatch.setattr(NeedleInAHaystack, "samples", lambda *made_of: ["text"])
    with pytest.raises(UserError, match="benchmark niah has made a str among its samples, not a Sample"):
        run(*given)
