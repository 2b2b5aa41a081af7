"""Points of curves: from records and from published values."""

import numpy as np
import pytest

from kvbench.errors import UserError
from kvbench.evaluation.settings import build_settings
from kvbench.papers.columns import columns
from kvbench.papers.command_line import configurations
from kvbench.papers.published import published
from kvbench.report.figures.curve import FULL
from kvbench.report.figures.curve_points import line_names, measured_points, published_points
from kvbench.report.figures.make import drawn
from tests.support.figure_records import BYTES, FIG5, panels, part_of, somehow
from tests.support.made_runs import make_runs

pytestmark = pytest.mark.heavy


def test_measured_points_are_means_over_tasks_with_intervals_over_samples(figure5):
    part = part_of(figure5, FIG5, "model=llama3-8b")
    (column,) = columns(["average"], part.cfg.benchmark, part.cfg.benchmark)
    frame = measured_points(part, [column], "r")
    assert list(frame["line"].unique()) == [FULL, "pyramidinfer", "pyramidkv_paper", "spindlekv_paper"]
    assert frame["column"].unique() == ["average"]
    for _, point in frame[frame["line"] == "spindlekv_paper"].iterrows():
        (setting,) = [s for s in part.settings if s.name == "spindlekv_paper" and s.ratio == point["x"]]
        means = [np.mean([somehow(setting, task, i) for i in range(3)]) for task in column.every_task]
        assert point["score"] == pytest.approx(100 * np.mean(means))
        assert point["low"] < point["score"] < point["high"] and point["ratio"] == 0.5
    assert frame["x"].isna().tolist() == (frame["line"] == FULL).tolist()


@pytest.mark.parametrize(
    "model, stem", [("mistral-7b-v0.2", 1), ("llama3-8b", 10), ("llama2-7b-chat", 11), ("smollm2-135m", 1)]
)
def test_published_points_are_those_of_the_papers_table(figure5, tmp_path, model, stem):
    top = figure5
    if model == "smollm2-135m":
        make_runs(tmp_path, FIG5, f"model={model}", score=somehow, samples=1, **BYTES)
        top = tmp_path
    part = part_of(top, FIG5, f"model={model}")
    experiment = part.cfg.experiment
    shown = columns(experiment.columns, part.cfg.benchmark, part.cfg.benchmark)
    printed = published_points(part, experiment, shown, "r")
    table = published(f"spindlekv_table{stem}")
    table = table[(table["column"] == "average") & (table["method"] == "spindle")]
    found = printed.points[printed.points["line"] == "spindlekv_paper"]
    assert dict(zip(found["x"], found["score"], strict=True)) == dict(zip(table["ratio"], table["value"], strict=True))
    assert (printed.points["line"] == FULL).sum() == 1
    assert printed.source == f"SpindleKV Table {stem}, {table['model'].iloc[0]}"
    assert any("unfolded" in text for text in printed.errata) == (stem != 11)  # all but Llama-2 have grouped queries


@pytest.mark.heavy
def test_fewer_tasks_are_compared_with_the_published_scores_of_the_same(tmp_path):
    few = (FIG5, "model=llama3-8b", "benchmark.tasks=[qasper,trec]")
    make_runs(tmp_path, *few, score=somehow, samples=2, **BYTES)
    part = part_of(tmp_path, *few)
    figure = dict(drawn(part))["curve"]
    assert panels(figure)[0].get_title() == "average of 2"
    table = published("spindlekv_table10")
    table = table[table["column"].isin(["qasper", "trec"]) & (table["method"] == "spindle")]
    line = [line for line in panels(figure)[0].lines if line.get_color() == "0.55"][-1]
    means = table.groupby("ratio")["value"].mean()
    assert list(line.get_xdata()) == list(means.index) and list(line.get_ydata()) == pytest.approx(list(means))


def test_a_curve_over_a_parameter_joins_the_settings_that_differ_in_it_alone(tmp_path):
    over = ("+experiment=pooling_merge_fig6", "benchmark.tasks=[trec,qasper]")
    make_runs(tmp_path, *over, score=somehow, samples=2, **BYTES)
    part = part_of(tmp_path, *over)
    assert set(line_names(part.settings, "l0").values()) == {"pooling_best", "pooling_mean", "pooling_max"}
    figure = dict(drawn(part))["curve"]
    assert [axis.get_title() for axis in panels(figure)] == ["Qasper", "TREC", "TREC"]
    best = panels(figure)[0].lines[-3]
    assert list(best.get_xdata()) == [256, 512, 1024, 4096]
    assert panels(figure)[0].get_xlabel() == "l0"
    with pytest.raises(
        UserError, match=r"no number 'colour' for the axis: .*r, r_bytes, .*r_mean, .*budget, ratio, .*l0"
    ):
        measured_points(part, columns(["trec"], part.cfg.benchmark, part.cfg.benchmark), "colour")
    with pytest.raises(UserError, match="has no budget for the axis"):
        measured_points(part, columns(["trec"], part.cfg.benchmark, part.cfg.benchmark), "budget")
    points = measured_points(part, columns(["trec"], part.cfg.benchmark, part.cfg.benchmark), "r_mean", "r_read")
    assert points[points["line"] != FULL][["x", "ratio"]].nunique().tolist() == [1, 1]
    assert points["ratio"].iloc[-1] == points["x"].iloc[-1] == 0.2118


def test_a_setting_alone_on_its_line_keeps_its_label():
    (cfg,) = configurations(["+experiment=pooling_merge_fig7", "method=[full,snapkv]", "ratio=[0.2,0.4]"])
    named = line_names(build_settings(cfg.method, cfg.ratio, cfg.budget), "beta")
    assert sorted(set(named.values())) == ["pooling", "snapkv 0.2", "snapkv 0.4"]


def test_both_axes_of_bytes_have_the_bytes_as_served(tmp_path):
    in_float32 = {"r_bytes": 0.25, "r_bytes_16": 0.5, "dtype": "torch.float32"}
    make_runs(tmp_path, FIG5, "model=llama3-8b", score=somehow, samples=1, **BYTES, **in_float32)
    part = part_of(tmp_path, FIG5, "model=llama3-8b")
    shown = columns(["average"], part.cfg.benchmark, part.cfg.benchmark)
    frame = measured_points(part, shown, "r_bytes").dropna(subset="x")
    assert len(frame) and {*frame["x"]} == {*frame["ratio"]} == {0.5}
