"""Figures from records alone: what is drawn, what is told beside it, and that it can be read without colour."""

import random
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib import colormaps
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from kvbench.errors import UserError
from kvbench.evaluation.settings import build_settings
from kvbench.figures.attention_maps import attention_maps, token_maps
from kvbench.figures.curve import FULL, OUR_COLUMNS, PUBLISHED_COLUMNS, curves
from kvbench.figures.curve_points import line_names, our_points, published_points
from kvbench.figures.layer_lines import by_layer, layer_lines
from kvbench.figures.lazy_layers import lazy_maps, lazy_share
from kvbench.figures.make import drawn, make
from kvbench.figures.memory import cache_sizes, memory_figure
from kvbench.figures.needle_heatmap import heatmaps, ink
from kvbench.figures.speed import speed_figure
from kvbench.figures.style import SCALE, bar_styles, line_styles, new_figure, save
from kvbench.papers.columns import columns
from kvbench.papers.command_line import configurations
from kvbench.papers.experiment import Experiment
from kvbench.papers.published import published
from kvbench.papers.records import select
from kvbench.tables.make import make as make_table
from tests.support.command import kvbench
from tests.support.made_runs import make_runs, records_of, write_run
from tests.support.paths import DATA
from tests.support.runs import run

FIG5 = "+experiment=spindlekv_fig5"
BYTES = {"stored_bytes": 2**20, "full_bytes": 2**21, "peak_cache_bytes": 2**22}
CAPTION = "Paper Figure 1 · " + 30 * "what the run was like and how it differs "


def somehow(setting, task, i) -> float:
    """Scores that depend on setting, task and sample, the same on every machine."""
    return random.Random(f"{setting.label} {task} {i}").random()


def part_of(top: Path, *overrides: str):
    (cfg,) = configurations(overrides)
    part = select(cfg, [top])
    assert part is not None
    return part


def texts(figure: Figure) -> str:
    """Every text of a figure, in one line."""
    figure.draw_without_rendering()
    return " ".join(" ".join(item.get_text().split()) for item in figure.findobj(lambda x: hasattr(x, "get_text")))


def panels(figure: Figure) -> list:
    return [
        axis for axis in figure.findobj(lambda x: hasattr(x, "get_xlabel")) if axis.get_visible() and axis.get_title()
    ]


def legend(figure: Figure) -> list[str]:
    return [text.get_text() for of in figure.findobj(lambda x: hasattr(x, "legend_handles")) for text in of.get_texts()]


# Marks, captions, files


def test_lines_and_bars_differ_without_colour():
    names = [f"method {i}" for i in range(60)]
    styles = line_styles(names)
    assert len({(style["marker"], str(style["linestyle"])) for style in styles.values()}) == 60
    bars = bar_styles(names[:40])
    assert len({(style["facecolor"], style["hatch"]) for style in bars.values()}) == 40
    assert line_styles(["a", "b", "a"]).keys() == {"a", "b"}
    some = [np.dot(to_rgb(style["color"]), (0.299, 0.587, 0.114)) for style in list(styles.values())[:4]]
    assert np.ptp(some) > 0.3


def test_the_scale_of_maps_goes_from_dark_to_light():
    grey = colormaps[SCALE](np.linspace(0, 1, 256))[:, :3] @ (0.299, 0.587, 0.114)
    assert (np.diff(grey) > 0).all() and grey[0] < 0.2 and grey[-1] > 0.8
    assert (ink(0.0), ink(1.0)) == ("white", "black")


@pytest.mark.parametrize("width", [2, 6, 14])
def test_a_caption_is_wrapped_and_never_cut_off(width):
    figure, body = new_figure(width, 3, CAPTION)
    body.subplots().set_xlabel("x")
    figure.draw_without_rendering()
    (text,) = [item for item in figure.findobj(lambda x: hasattr(x, "get_text")) if "Paper" in item.get_text()]
    box, whole = text.get_window_extent(), figure.bbox
    assert whole.x0 <= box.x0 and box.x1 <= whole.x1 and whole.y0 <= box.y0
    axis = figure.axes[0].get_tightbbox()
    assert box.y1 <= axis.y0  # and it is printed over nothing
    assert " ".join(text.get_text().split()) == " ".join(CAPTION.split())


def test_the_same_figure_gives_the_same_bytes(tmp_path):
    for name in ("first", "second.5"):  # a point in a model's name is no suffix
        written = save(memory_figure(method_records(), CAPTION), tmp_path / name)
        assert [path.name for path in written] == [f"{name}.png", f"{name}.pdf"]
    for suffix in ("png", "pdf"):
        first, second = ((tmp_path / f"{name}.{suffix}").read_bytes() for name in ("first", "second.5"))
        assert first == second and len(first) > 5000
    assert b"CreationDate" not in first and b"/FontFile2" in first  # text that can be searched and edited


# Needle grids


def method_records(settings=("full", "snapkv 0.2", "snapkv 0.4"), **fields) -> pd.DataFrame:
    rows = [
        {
            "setting": setting,
            "method": setting.split()[0],
            "sample": f"{length}-{depth}",
            "task": "niah",
            "length": length,
            "depth": depth,
            "r": 1.0 if setting == "full" else float(setting.split()[1]),
            "r_bytes": 1.0 if setting == "full" else 3 * float(setting.split()[1]),
            "memory": "shared",
            "prompt_tokens": 100,
            "kept_per_layer": [100.0, 100.0, 20.0],
            "scores": {"digits": depth / 100, "exact": 0.0},
            **BYTES,
            **fields,
        }
        for setting in settings
        for length in (1000, 2000)
        for depth in (0, 50, 100)
    ]
    return pd.DataFrame(rows)


def test_needle_grids_of_all_settings_have_one_scale_and_tell_their_means():
    figure = heatmaps(method_records(), "digits", CAPTION)
    images = [axis.images[0] for axis in panels(figure)]
    assert len(images) == 3 and {(image.norm.vmin, image.norm.vmax) for image in images} == {(0, 1)}
    assert (np.asarray(images[0].get_array()) == [[0, 0], [0.5, 0.5], [1, 1]]).all()
    assert panels(figure)[1].get_title().splitlines() == ["snapkv 0.2", "mean 0.50", "r 0.20 · r_bytes 0.60"]
    for text in ("context length (tokens)", "needle depth (%)", "score (digits, 0 to 1)", "how it differs"):
        assert text in texts(figure)


# Curves


def points(*columns: str, low=30.0) -> tuple[pd.DataFrame, pd.DataFrame]:
    mine = [(column, FULL, np.nan, 1.0, 50.0, 45.0, 55.0) for column in columns]
    mine += [(c, m, x, 3 * x, 40 + x, low, 45.0) for c in columns for m in ("a", "b") for x in (0.4, 0.2)]
    paper = [(column, FULL, np.nan, 60.0) for column in columns]
    paper += [(column, "a", x, 48 + x) for column in columns for x in (0.3, 0.1)]
    return pd.DataFrame(mine, columns=OUR_COLUMNS), pd.DataFrame(paper, columns=PUBLISHED_COLUMNS)


def test_a_curve_is_drawn_against_r_and_against_bytes_beside_the_published_one():
    figure = curves(*points("average"), "r (reserve ratio)", "Table 1, big-model", CAPTION)
    against_r, against_bytes = panels(figure)
    assert against_r.get_xlabel() == "r (reserve ratio)" and "r_bytes" in against_bytes.get_xlabel()
    assert {axis.get_ylabel() for axis in (against_r, against_bytes)} == {"score (0 to 100)"}
    assert legend(figure) == ["a", "b", "FullKV", "published: Table 1, big-model", "95 % interval"]

    full, a, b, printed_full, printed = against_r.lines
    assert list(a.get_xdata()) == [0.2, 0.4] and list(a.get_ydata()) == [40.2, 40.4]
    assert list(printed.get_xdata()) == [0.1, 0.3] and list(printed.get_ydata()) == [48.1, 48.3]
    assert set(full.get_ydata()) == {50} and set(printed_full.get_ydata()) == {60}
    assert printed.get_marker() == a.get_marker() != b.get_marker()
    assert a.get_linestyle() != b.get_linestyle() and printed.get_markerfacecolor() == "white"
    assert len(against_bytes.lines) == 3
    assert list(against_bytes.lines[1].get_xdata()) == pytest.approx([0.6, 1.2])
    bar = against_r.collections[0].get_segments()[0]
    assert [y for _, y in bar] == [30, 45]
    low, high = against_r.get_ylim()
    assert low < 30 and high > 60


def test_without_intervals_and_published_numbers_the_legend_names_neither():
    mine, paper = points("trec", "average", low=np.nan)
    figure = curves(mine, paper.iloc[:0], "l0", "", CAPTION)
    assert legend(figure) == ["a", "b", "FullKV"]
    assert [axis.get_title() for axis in panels(figure)] == ["trec", "average", "average"]
    assert not any(len(of.get_segments()) for axis in panels(figure) for of in axis.collections)


@pytest.fixture(scope="module")
def figure5(tmp_path_factory) -> Path:
    """Records of SpindleKV's Figure 5 for all three models."""
    top = tmp_path_factory.mktemp("figure5")
    make_runs(top, FIG5, score=somehow, samples=3, **BYTES)
    return top


def test_our_points_are_means_over_tasks_with_intervals_over_samples(figure5):
    part = part_of(figure5, FIG5, "model=llama3-8b")
    (column,) = columns(["average"], part.cfg["benchmark"], part.cfg["benchmark"])
    frame = our_points(part, [column], "r")
    assert list(frame["line"].unique()) == [FULL, "pyramidinfer", "pyramidkv_paper", "spindlekv_paper"]
    assert frame["column"].unique() == ["average"]
    for _, point in frame[frame["line"] == "spindlekv_paper"].iterrows():
        (setting,) = [s for s in part.settings if s.name == "spindlekv_paper" and s.ratio == point["x"]]
        means = [np.mean([somehow(setting, task, i) for i in range(3)]) for task in column.every_task]
        assert point["score"] == pytest.approx(100 * np.mean(means))
        assert point["low"] < point["score"] < point["high"] and point["r_bytes"] == 0.5
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
    experiment = Experiment.of(part.cfg)
    shown = columns(experiment.columns, part.cfg["benchmark"], part.cfg["benchmark"])
    printed = published_points(part, experiment, shown, "r")
    table = published(f"spindlekv_table{stem}")
    table = table[(table["column"] == "average") & (table["method"] == "spindle")]
    found = printed.points[printed.points["line"] == "spindlekv_paper"]
    assert dict(zip(found["x"], found["score"], strict=True)) == dict(zip(table["ratio"], table["value"], strict=True))
    assert (printed.points["line"] == FULL).sum() == 1
    assert printed.source == f"SpindleKV Table {stem}, {table['model'].iloc[0]}"
    assert any("unfolded" in text for text in printed.errata) == (stem != 11)  # all but Llama-2 have grouped queries


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
    with pytest.raises(UserError, match=r"no number 'colour' for the axis: .*r, budget, ratio, .*l0"):
        our_points(part, columns(["trec"], part.cfg["benchmark"], part.cfg["benchmark"]), "colour")
    with pytest.raises(UserError, match="has no budget for the axis"):
        our_points(part, columns(["trec"], part.cfg["benchmark"], part.cfg["benchmark"]), "budget")


def test_a_setting_alone_on_its_line_keeps_its_label():
    (cfg,) = configurations(["+experiment=pooling_merge_fig7", "method=[full,snapkv]", "ratio=[0.2,0.4]"])
    named = line_names(build_settings(cfg["method"], cfg["ratio"], cfg["budget"]), "beta")
    assert sorted(set(named.values())) == ["pooling", "snapkv 0.2", "snapkv 0.4"]


# Lazy layers, memory, speed, probes


def test_lazy_layers_are_those_that_kept_less_than_the_prompt():
    records = pd.DataFrame(
        {
            "setting": "simlayerkv",
            "sample": list("abcd"),
            "task": ["x", "x", "y", "y"],
            "prompt_tokens": 100,
            "kept_per_layer": [[100.0, 30.0], [30.0, 30.0], [100.0, 100.0], [100.0, 30.0]],
        }
    )
    by_task = lazy_share(records)
    assert by_task.to_numpy().tolist() == [[0.5, 0.0], [1.0, 0.5]] and list(by_task) == ["x", "y"]
    assert list(lazy_share(records[:2])) == ["a", "b"]
    figure = lazy_maps(records, CAPTION)
    assert panels(figure)[0].get_title() == "simlayerkv\n50% of layers"
    assert "share of samples in which the layer was lazy" in texts(figure) and "layer" in texts(figure)


def test_memory_shows_bytes_and_where_r_promises_fewer():
    frame = cache_sizes(method_records())
    assert frame["stored"].tolist() == [1, 1, 1] and frame["full"].tolist() == [2, 2, 2] and frame["peak"].isna().all()
    figure = memory_figure(method_records(), CAPTION)
    bars, scatter = panels(figure)
    assert [text.get_text() for text in bars.get_yticklabels()] == ["full", "snapkv 0.2", "snapkv 0.4"]
    assert [text.get_text() for text in bars.texts] == ["1.000", "0.600", "1.200"]
    diagonal, full, snapkv = scatter.lines
    assert list(snapkv.get_xdata()) == pytest.approx([0.2, 0.4]) and list(snapkv.get_ydata()) == pytest.approx(
        [0.6, 1.2]
    )
    assert (np.asarray(diagonal.get_xdata()) == np.asarray(diagonal.get_ydata())).all()
    assert scatter.get_ylim()[1] > 1.2 and full.get_marker() != snapkv.get_marker()
    assert "MiB per prompt, mean over samples" in texts(figure)
    streamed = cache_sizes(method_records(memory="stream"))
    assert streamed["peak"].tolist() == [4, 4, 4]


def test_speed_draws_the_median_and_quartiles_of_what_was_measured():
    frame = pd.DataFrame(
        [
            {"setting": s, "length": n, "new_tokens": 4, "batch": b, "decode_tokens_per_s": v * n}
            | {"first_token_seconds": 1.0}
            for s in ("full", "snapkv 0.2")
            for n in (1, 2)
            for b in (1, 8)
            for v in (10, 20, 30, 40, 100)
        ]
    )
    figure = speed_figure(frame, CAPTION)
    decoding, first = panels(figure)  # no peak was measured
    assert [bar.get_height() for bar in decoding.patches] == [30, 30, 60, 60] * 2
    assert [y for _, y in decoding.collections[0].get_segments()[0]] == [20, 40]
    assert (decoding.get_ylabel(), first.get_ylabel()) == ("tokens / s", "seconds")
    assert [text.get_text() for text in decoding.get_xticklabels()] == ["1\n× 1", "1\n× 8", "2\n× 1", "2\n× 8"]
    assert legend(figure) == ["full", "snapkv 0.2"]
    assert len({bar.get_hatch() for bar in decoding.patches}) == 2


def probe_records() -> pd.DataFrame:
    common = {"prompt_tokens": 6, "answer_tokens": 2, "layers": [0, 5], "sample": "a sample", "parameters": "{}"}
    return pd.DataFrame(
        [
            {"probe": "lazy_mass", "axes": "heads", "quantity": "mass", "values": [[0.2, 0.4], [0.5, 0.7]]} | common,
            {"probe": "lazy_mass", "axes": "heads", "quantity": "mass", "values": [[0.6, 0.8], [0.5, 0.7]]} | common,
            {"probe": "lazy_tokens", "axes": "tokens", "quantity": "m", "values": [[1, 1, 1, 0.1, 0.2]] * 2} | common,
            {"probe": "map", "axes": "map", "quantity": "share", "values": [np.eye(4).tolist()] * 2} | common,
        ]
    )


def test_layers_show_mean_and_spread_over_heads_and_samples():
    records = probe_records()[:2].assign(parameters='{"delta": 0.75}')
    frame = by_layer(records)
    assert frame["layer"].tolist() == [0, 5] and frame["mean"].tolist() == pytest.approx([0.5, 0.6])
    assert frame["low"].tolist() == pytest.approx([0.26, 0.5]) and frame["heads"].tolist() == [2, 2]
    figure = layer_lines(records, CAPTION)
    (axis,) = panels(figure)
    assert (axis.get_title(), axis.get_xlabel(), axis.get_ylabel()) == ("lazy_mass", "layer", "mass")
    assert list(axis.lines[0].get_ydata()) == pytest.approx([0.5, 0.6]) and set(axis.lines[1].get_ydata()) == {0.75}
    assert legend(figure) == ["delta 0.75: lazy above"]
    assert "10% to 90% of heads and samples" in texts(figure)


def test_maps_hide_what_no_query_sees_and_mark_the_answer():
    figure = attention_maps(probe_records()[3:], CAPTION)
    assert [axis.get_title() for axis in panels(figure)] == ["layer 0", "layer 5"]
    image = panels(figure)[0].images[0]
    assert image.get_array().mask.tolist() == np.triu(np.ones((4, 4), bool), 1).tolist()
    (box,) = panels(figure)[0].patches
    assert (box.get_y(), box.get_height(), box.get_linestyle()) == (6, 2, "--")
    for text in ("attended token (position)", "query (position)", "share", "a sample"):
        assert text in texts(figure)


def test_token_maps_give_the_answer_a_part_of_its_own():
    figure = token_maps(probe_records()[2:3], CAPTION)
    (axis,) = panels(figure)
    mesh = axis.collections[0]
    assert np.asarray(mesh.get_array()).tolist() == [[1, 1, 1, 0.1, 0.2]] * 2
    edges = mesh.get_coordinates()[0, :, 0]
    assert edges.tolist() == pytest.approx([0, 0.25, 0.5, 0.75, 0.875, 1])
    assert [text.get_text() for text in axis.get_xticklabels()] == ["0", "6", "+2"]
    assert "answer" in texts(figure)


# The command


def test_the_command_draws_every_model_and_the_same_records_the_same_way(figure5, tmp_path):
    written = make([FIG5], [str(figure5)], str(tmp_path / "first"))
    names = {path.name for path in written}
    models = ("llama2-7b-chat", "llama3-8b", "mistral-7b-v0.2")
    kinds = [f"{kind}.{suffix}" for kind in ("curve", "memory") for suffix in ("png", "pdf")]
    assert names == {f"spindlekv_fig5-{model}-{kind}" for model in models for kind in kinds}
    again = make([FIG5, "model=llama3-8b"], [str(figure5)], str(tmp_path / "again"))
    assert len(again) == 4
    for path in again:
        assert path.read_bytes() == (tmp_path / "first" / path.name).read_bytes()


def test_captions_tell_item_model_protocol_samples_and_whose_curve_is_grey(figure5, tmp_path):
    figures = dict(drawn(part_of(figure5, FIG5, "model=llama3-8b")))
    assert list(figures) == ["curve", "memory"]
    told = texts(figures["curve"])
    expected = ["SpindleKV Figure 5 · longbench · llama3-8b (bfloat16)", "question visible when compressing"]
    expected += ["48 samples of 16 tasks", "grey: published, SpindleKV Table 10, llama3-8b", "errata that concern them"]
    for text in expected:
        assert text in told
    assert "another model" not in told
    small = (FIG5, "model=smollm2-135m", "limit=1")
    make_runs(tmp_path, *small, score=somehow, samples=1, **BYTES)
    told = texts(dict(drawn(part_of(tmp_path, *small)))["curve"])
    assert "scaled down: smollm2-135m in place of" in told and "at most 1 sample of a task" in told
    assert "Table 1, mistral-7b-v0.2, another model than ours" in told


def test_missing_records_are_told(tmp_path):
    some = ("+experiment=simlayerkv_table11", "benchmark.tasks=[lcc]")
    (cfg,) = configurations(some)
    records = records_of(cfg, somehow, 3, skip=lambda setting, _, i: i == 2 and setting.name != "full", **BYTES)
    write_run(tmp_path / "run", cfg, records)
    figures = dict(drawn(part_of(tmp_path, *some)))
    assert list(figures) == ["lazy_map", "memory"]  # a table's records, and SimLayerKV among them
    assert "some records are missing: simlayerkv_paper 2 of 3" in texts(figures["memory"])


def test_hidden_questions_and_other_drawings_of_the_same_records(figure5, tmp_path):
    shown = (FIG5, "model=llama3-8b", "experiment.show=memory", "experiment.x=null")
    assert list(dict(drawn(part_of(figure5, *shown)))) == ["memory"]
    hidden = (FIG5, "model=llama3-8b", "question=hidden")
    make_runs(tmp_path / "runs", *hidden, score=somehow, samples=1, **BYTES)
    names = {path.name for path in make(hidden, [str(tmp_path / "runs")], str(tmp_path))}
    assert "spindlekv_fig5-llama3-8b-hidden-curve.png" in names


@pytest.mark.parametrize(
    "overrides, message",
    [
        ([], r"name an experiment: \+experiment=NAME"),
        ([FIG5, "limit=7", "benchmark.seed=3"], "no records of spindlekv_fig5 in .*this command makes them"),
        ([FIG5, "model=llama3-8b", "experiment.show=lazy_map", "experiment.x=null"], "no setting here is SimLayerKV's"),
        ([FIG5, "model=llama3-8b", "experiment.show=layers", "experiment.x=null"], "is drawn from probes"),
        (
            [FIG5, "model=llama3-8b", "experiment.show=heatmap", "experiment.x=null"],
            "needle grid: these have no length",
        ),
        ([FIG5, "model=llama3-8b", "experiment.show=speed", "experiment.x=null"], "benchmark=speed: these have no"),
        ([FIG5, "model=llama3-8b", "experiment.x=budget"], "has no budget for the axis"),
        (["+experiment=simlayerkv_fig4"], "no records of simlayerkv_fig4"),
    ],
)
def test_a_mistake_is_told_in_one_line(figure5, tmp_path, overrides, message):
    with pytest.raises(UserError, match=message) as error:
        make(overrides, [str(figure5)], str(tmp_path))
    assert "\n" not in str(error.value)


def test_folders_that_are_none_are_told(figure5, tmp_path):
    with pytest.raises(UserError, match="runs=nowhere is not a folder"):
        make([FIG5], ["nowhere"])
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="write figures to"):
        make([FIG5, "model=llama3-8b"], [str(figure5)], str(tmp_path / "file" / "below"))


def test_the_command_line_prints_what_it_wrote(figure5, tmp_path, capsys, monkeypatch):
    assert kvbench("figure", FIG5, "model=llama3-8b", f"runs={figure5}", f"out={tmp_path}") == 0
    assert str(tmp_path / "spindlekv_fig5-llama3-8b-curve.pdf") in capsys.readouterr().out
    assert kvbench("figure", "--help") == 0
    assert "spindlekv_fig5" in capsys.readouterr().out
    assert kvbench("figure", "+experiment=nothing") == 2
    assert "unknown experiment 'nothing'" in capsys.readouterr().err


# Real runs


def toy(folder: Path, out: Path, *more: str) -> list[str]:
    return [
        *(f"model.path={folder}", "model=smollm2-135m", "model.max_length=4096", f"output_dir={out}"),
        *("benchmark.lengths=[320,400]", "benchmark.depths=[0,100]", "benchmark.haystack_dir=null", *more),
    ]


def test_a_run_of_needles_becomes_its_figure(tiny_folder, tmp_path):
    more = ["benchmark.needle_file=null", "benchmark.max_new_tokens=2", "method=[full,pyramidkv_paper]", "budget=96"]
    overrides = ["+experiment=pyramidkv_fig8", *toy(tiny_folder, tmp_path, *more)]
    run(*overrides)
    figures = dict(drawn(part_of(tmp_path, *overrides)))
    assert list(figures) == ["heatmap", "memory"]
    assert [axis.get_title().splitlines()[0] for axis in panels(figures["heatmap"])] == ["full", "pyramidkv_paper 96"]
    assert "scaled down: smollm2-135m in place of mistral-7b-v0.2" in texts(figures["heatmap"])
    written = make(overrides)
    assert {path.parent for path in written} == {tmp_path / "figures"} and all(path.stat().st_size for path in written)


def test_a_run_of_speed_becomes_its_figure(tiny_folder, tmp_path):
    more = ["benchmark.lengths=[64]", "benchmark.new_tokens=[4]", "benchmark.batches=[1]", "benchmark.repeats=1"]
    overrides = ["+experiment=simlayerkv_throughput", "model=smollm2-135m", f"model.path={tiny_folder}", *more]
    overrides += ["method=[full,simlayerkv_paper]", f"output_dir={tmp_path}"]
    run(*overrides)
    assert [path.name for path in make(overrides)] == [
        f"simlayerkv_throughput-smollm2-135m-speed.{suffix}" for suffix in ("png", "pdf")
    ]
    overrides = [*overrides[:-1], "benchmark.memory_gib=0.00001", f"output_dir={tmp_path / 'small'}"]
    run(*overrides)
    with pytest.raises(UserError, match="no batch of these runs fits into the memory"):
        make(overrides)


def test_a_run_of_probes_becomes_its_figure_and_no_table(tiny_folder, tmp_path):
    rows = f"benchmark.data_dir={DATA / 'longbench'}"
    small = "benchmark.tasks=2wikimqa", rows, "benchmark.max_length=300", "model=smollm2-135m"
    common = *small, f"model.path={tiny_folder}", f"output_dir={tmp_path}"
    overrides = ["+experiment=simlayerkv_fig4", *common]
    run(*overrides)
    run("benchmark=longbench", "method=full", "limit=1", *common)  # beside it, of the same samples
    written = make(overrides)
    assert [path.name for path in written] == [f"simlayerkv_fig4-smollm2-135m-token_map.{s}" for s in ("png", "pdf")]
    with pytest.raises(UserError, match=r"has no scores \(token_map\)"):
        make_table(overrides)
    with pytest.raises(UserError, match="no records of simlayerkv_fig4"):
        make([*overrides, "probe.lazy_tokens.window=7"])
