"""The command: an experiment's figures from its records."""

from pathlib import Path

import pytest

from kvbench.errors import UserError
from kvbench.papers.command_line import configurations
from kvbench.report.figures.make import drawn, make
from kvbench.report.tables.make import make as make_table
from tests.support.command import kvbench
from tests.support.figure_records import BYTES, FIG5, panels, part_of, somehow, texts
from tests.support.made_runs import make_runs, records_of, write_run
from tests.support.paths import DATA
from tests.support.runs import run

pytestmark = pytest.mark.heavy


def test_the_command_draws_every_model(figure5, tmp_path):
    written = make([FIG5], [str(figure5)], str(tmp_path / "first"))
    names = {path.name for path in written}
    models = ("llama2-7b-chat", "llama3-8b", "mistral-7b-v0.2")
    kinds = [f"{kind}.{suffix}" for kind in ("curve", "memory") for suffix in ("png", "pdf")]
    assert names == {f"spindlekv_fig5-{model}-{kind}" for model in models for kind in kinds}


@pytest.mark.heavy
def test_the_same_records_are_drawn_the_same_way(rendered, figure5, tmp_path):
    first, again = (
        make([FIG5, "model=llama3-8b"], [str(figure5)], str(tmp_path / name)) for name in ("first", "again")
    )
    assert len(first) == len(again) == 4
    for path, other in zip(first, again, strict=True):
        assert path.read_bytes() == other.read_bytes() and path != other


def test_captions_name_item_model_protocol_samples_and_whose_curve_is_grey(figure5, tmp_path):
    figures = dict(drawn(part_of(figure5, FIG5, "model=llama3-8b")))
    assert list(figures) == ["curve", "memory"]
    shown = texts(figures["curve"])
    expected = ["SpindleKV Figure 5 · longbench · llama3-8b (bfloat16)", "question visible when compressing"]
    expected += ["48 samples of 16 tasks", "grey: published, SpindleKV Table 10, llama3-8b", "errata that concern them"]
    for text in expected:
        assert text in shown
    assert "another model" not in shown
    small = (FIG5, "model=smollm2-135m", "limit=1")
    make_runs(tmp_path, *small, score=somehow, samples=1, **BYTES)
    shown = texts(dict(drawn(part_of(tmp_path, *small)))["curve"])
    assert "scaled down: smollm2-135m in place of" in shown and "at most 1 sample of a task" in shown
    assert "Table 1, mistral-7b-v0.2, a different model" in shown


def test_a_curve_says_whether_its_bytes_are_those_of_16_bits(tmp_path):
    chosen = (FIG5, "model=llama3-8b")
    for folder, served, name in (("new", {"r_bytes_16": 0.4}, "r_bytes_16"), ("old", {"r2": 0.5}, "r_bytes")):
        make_runs(tmp_path / folder, *chosen, score=somehow, samples=1, **BYTES, **served, dtype="torch.float32")
        curve = dict(drawn(part_of(tmp_path / folder, *chosen)))["curve"]
        assert panels(curve)[-1].get_xlabel().startswith(f"{name} (")


def test_missing_records_are_reported(tmp_path):
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
        ([FIG5, "limit=7", "benchmark.seed=3"], "no records of spindlekv_fig5 in [^;]*; this command computes them"),
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
def test_a_mistake_is_reported_in_one_line(figure5, tmp_path, overrides, message):
    with pytest.raises(UserError, match=message):
        make(overrides, [str(figure5)], str(tmp_path))


def test_folders_that_are_none_are_reported(figure5, tmp_path):
    with pytest.raises(UserError, match="runs=nowhere is not a folder"):
        make([FIG5], ["nowhere"])
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="write figures to"):
        make([FIG5, "model=llama3-8b"], [str(figure5)], str(tmp_path / "file" / "below"))


def test_the_command_line_prints_what_it_wrote(figure5, tmp_path, capsys):
    assert kvbench("figure", FIG5, "model=llama3-8b", f"runs={figure5}", f"out={tmp_path}") == 0
    assert str(tmp_path / "spindlekv_fig5-llama3-8b-curve.pdf") in capsys.readouterr().out
    assert kvbench("figure", "--help") == 0
    assert "spindlekv_fig5" in capsys.readouterr().out
    assert kvbench("figure", "+experiment=nothing") == 2
    assert "unknown experiment 'nothing'" in capsys.readouterr().err


def toy(folder: Path, out: Path, *more: str) -> list[str]:
    return [
        *(
            f"model.path={folder}",
            "model.shape=null",
            "model=smollm2-135m",
            "model.max_length=4096",
            f"output_dir={out}",
        ),
        *("benchmark.lengths=[320,400]", "benchmark.depths=[0,100]", "benchmark.haystack_dir=null", *more),
    ]


@pytest.mark.heavy
def test_a_run_of_needles_becomes_its_figure(tiny_folder, tmp_path):
    more = ["benchmark.needle_file=null", "benchmark.max_new_tokens=2", "method=[full,pyramidkv_paper]", "budget=96"]
    overrides = ["+experiment=pyramidkv_fig8", *toy(tiny_folder, tmp_path, *more)]
    run(*overrides)
    figures = dict(drawn(part_of(tmp_path, *overrides)))
    assert list(figures) == ["heatmap", "memory"]
    assert [axis.get_title().splitlines()[0] for axis in panels(figures["heatmap"])] == [
        "FullKV",
        "PyramidKV (paper) 96",
    ]
    assert "scaled down: smollm2-135m in place of mistral-7b-v0.2" in texts(figures["heatmap"])
    written = make(overrides)
    assert {path.parent for path in written} == {tmp_path / "figures"} and all(path.stat().st_size for path in written)


@pytest.mark.heavy
def test_a_run_of_speed_becomes_its_figure(tiny_folder, tmp_path):
    more = ["benchmark.lengths=[64]", "benchmark.new_tokens=[4]", "benchmark.batches=[1]", "benchmark.repeats=1"]
    overrides = [
        "+experiment=simlayerkv_throughput",
        "model=smollm2-135m",
        f"model.path={tiny_folder}",
        "model.shape=null",
        *more,
    ]
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
    common = *small, f"model.path={tiny_folder}", "model.shape=null", f"output_dir={tmp_path}"
    overrides = ["+experiment=simlayerkv_fig4", *common]
    run(*overrides)
    run("benchmark=longbench", "method=full", "limit=1", *common)  # beside it, of the same samples
    written = make(overrides)
    assert [path.name for path in written] == [f"simlayerkv_fig4-smollm2-135m-token_map.{s}" for s in ("png", "pdf")]
    with pytest.raises(UserError, match=r"has no scores \(token_map\)"):
        make_table(overrides)
    with pytest.raises(UserError, match="no records of simlayerkv_fig4"):
        make([*overrides, "probe.lazy_tokens.window=7"])
