"""`kvbench frontier`: from a command to its table, sentence and figure, and what it refuses."""

import json
import math
from pathlib import Path

import pandas as pd
import pytest

from kvbench import models
from kvbench.errors import UserError
from kvbench.evaluation.settings import Setting, build_settings
from kvbench.methods import FullKV
from kvbench.records import load
from kvbench.report.page.frontier_data import read_frontier
from kvbench.runner.frontier import main
from kvbench.runner.frontier_search import chosen, placed, score
from kvbench.utils.console import out
from tests.support.config import method_configs

pytestmark = pytest.mark.heavy

KIVI = ("method.kivi.storage.group=8", "method.kivi.storage.residual=8")  # the tiny model's heads are narrow


@pytest.fixture(scope="module")
def command(tiny_folder, tmp_path_factory) -> list[str]:
    """Prompts without answers, on a tiny model."""
    folder = tmp_path_factory.mktemp("frontier")
    path = folder / "prompts.jsonl"
    rows = [{"context": f"{i} ships left the harbour at dawn, {i + 1} came back. " * 4} for i in range(6)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    model = [f"model.path={tiny_folder}", "model.shape=null", "model.max_length=4096", f"output_dir={folder / 'runs'}"]
    return ["benchmark=jsonl", f"benchmark.path={path}", "benchmark.max_new_tokens=8", *model]


@pytest.fixture(scope="module")
def found(command):
    """The run's folder and what was printed, of two methods with a ratio and one without."""
    with out.capture() as printed:
        main([*command, "method=[streaming_llm,knorm,kivi]", *KIVI, "quality=0.9", "passes=1"])
    (folder,) = Path(command[-1].removeprefix("output_dir=")).glob("jsonl-*")
    return folder, printed.get()


@pytest.mark.heavy
def test_each_method_is_tried_at_ratios_of_its_own(found):
    folder, _ = found
    frame = pd.read_csv(folder / "frontier.csv")
    tried = {method: sorted(rows["setting"]) for method, rows in frame.groupby("method")}
    assert tried["kivi"] == ["kivi"]
    assert {"knorm 0.5", "knorm 0.25", "knorm 0.015625"} <= {*tried["knorm"]}
    records = load(folder)
    again = records[~records["setting"].isin(["full", *frame["setting"]])]
    assert again["floored"].all()  # the same as a setting that is there
    assert len(records) == 6 * (1 + sum(map(len, tried.values())) + again["setting"].nunique())


@pytest.mark.heavy
def test_the_settings_of_a_method_bracket_what_is_held(found):
    folder, _ = found
    for _, rows in pd.read_csv(folder / "frontier.csv").groupby("method"):
        passing = rows["low"] > -rows["margin"]
        held = rows[rows["held"]]
        assert len(held) == bool(passing.iloc[rows["r_bytes"].argmax()])
        if len(held):
            assert passing[rows["r_bytes"] >= held["r_bytes"].item()].all()
    assert (pd.read_csv(folder / "frontier.csv")["margin"].round(6) == 0.1).all()  # FullKV agrees with itself


@pytest.mark.heavy
def test_table_sentence_and_figure_are_printed_and_kept(found):
    folder, printed = found
    assert "top1, at least 90 % of FullKV's 1.000" in " ".join(printed.split())
    text = (folder / "frontier.md").read_text(encoding="utf-8")
    assert "| KIVI |" in text and "On 6 samples" in text
    assert text.startswith("jsonl · smollm2-135m from tiny")  # the folder of model.path
    shown = read_frontier(folder)  # by the page
    assert text.endswith(f"{shown['sentence']}\n") and len(shown["points"]) == len(pd.read_csv(folder / "frontier.csv"))
    for suffix in ("png", "pdf"):
        assert (folder / f"frontier.{suffix}").stat().st_size > 0
    assert "table.md" not in printed  # the runs of the passes print nothing


@pytest.mark.parametrize("context_id", [None, "all"])
def test_bounds_draw_the_samples_of_a_context_together(context_id):
    rows = pd.DataFrame(
        {"sample": list("abcdef"), "value": [0.2, 0.4] * 3, "r_bytes": 0.5, "task": "t", "floored": False}
    )
    if context_id:
        rows["context_id"] = context_id
    found = placed(Setting("full", FullKV(), ""), rows, rows.assign(value=0.5), "score")
    assert found.difference == pytest.approx(-0.2) and found.ratio == 1
    assert math.isnan(found.low) == bool(context_id)  # one context tells nothing


@pytest.mark.heavy
def test_samples_without_a_task_among_others_count():
    """They were in no mean, and every bound was nan."""
    nodes = method_configs("full", "snapkv")
    settings = {name: build_settings({name: node}, [0.5], None) for name, node in nodes.items()}
    records = pd.DataFrame(
        {
            "sample": f"{task}{i}",
            "task": task,
            "setting": one.label,
            "parameters": one.parameters,
            "scores": {"score": float(name == "full" or task == "a")},
            "r_bytes": 0.5,
            "floored": False,
        }
        for name, (one,) in settings.items()
        for task in ("a", None)
        for i in range(5)
    )
    (point,) = score(records, *settings["full"], {"snapkv": settings["snapkv"]}, None, 0.9).frontiers["snapkv"].points
    assert point.difference == -0.5 and point.low < -0.5 < point.high


def test_the_same_command_makes_no_record_again(found, command):
    folder, printed = found
    before = (folder / "records.jsonl").read_bytes()
    with out.capture() as again:
        main([*command, "method=[streaming_llm,knorm,kivi]", *KIVI, "quality=0.9", "passes=1"])
    assert again.get() == printed
    assert (folder / "records.jsonl").read_bytes() == before


def test_all_passes_share_one_loaded_model_and_are_named_in_the_progress(command, tmp_path, monkeypatch, capsys):
    loads = []
    monkeypatch.setattr("kvbench.runner.run.load", lambda spec: loads.append(spec) or models.load(spec))
    monkeypatch.setattr("kvbench.runner.estimate.WORTH", 0)
    main([*command, "method=streaming_llm", "limit=2", "passes=1", f"output_dir={tmp_path}"])
    lines = [line for line in capsys.readouterr().err.splitlines() if "to make from" in line]
    assert [line.split(" to make")[0] for line in lines] == ["pass 1: 14 records", "pass 2: 6 records"]
    assert len(loads) == 1


@pytest.mark.heavy
def test_methods_that_compress_while_decoding_have_frontiers(command, tmp_path):
    main([*command, "method=knorm", "decode.compress={every:4}", "passes=0", f"output_dir={tmp_path}"])
    (path,) = tmp_path.glob("jsonl-*/frontier.csv")
    assert set(pd.read_csv(path)["method"]) == {"knorm"}


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["quality=2"], "quality=2 must be a number above 0 and at most 1"),
        (["method=knorm", "pases=1"], "unknown key 'pases'. Did you mean 'passes'? Allowed: "),
        (["passes=-1"], "passes=-1 must be an integer of at least 0"),
        (["ratio=0.2"], "kvbench frontier chooses the ratios: leave out ratio= and budget="),
        (["method=full"], "kvbench frontier compares methods with FullKV"),
        (
            ["method=[full,knorm]", "storage@method.full.storage=kivi"],
            'method.full={"_target_": "kvbench.methods.FullKV"',
        ),
        (["method._target_=my.Method"], "kvbench frontier takes methods by name"),
    ],
)
def test_mistakes_are_one_line(arguments, message):
    with pytest.raises(UserError) as error:
        main(arguments)
    assert str(error.value).startswith(message)


def test_a_distance_that_no_record_has_is_said_to_be_unmeasured():
    """It was unknown: frontier's own first run of the folder, by the score, had measured none."""
    with pytest.raises(UserError, match="measure=top1: the records were made without distance=true"):
        chosen("top1", pd.DataFrame({"scores": [{"score": 1.0}]}), [])


@pytest.mark.parametrize("measure, distances", [("bits_per_byte", {"top1": 1.0, "kl": 0.0}), ("kl", {})])
def test_a_distance_that_another_folder_would_not_have_either_is_unknown(measure, distances):
    """The line sent one to another output_dir, which would have said that the measure is unknown."""
    with pytest.raises(UserError, match=f"unknown measure '{measure}'"):
        chosen(measure, pd.DataFrame({"scores": [{"score": 1.0, **distances}]}), list(distances))


def test_a_measure_must_be_one_of_which_more_is_better(command):
    with pytest.raises(UserError, match=r"unknown measure 'kl'\. Allowed: agreed, score, top1"):
        main([*command, "method=knorm", "passes=0", "measure=kl"])
