"""What holds for every file of conf/experiment: it composes, builds, and agrees with the published data."""

import copy
import json
from functools import cache

import pandas as pd
import pytest
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf

from kvbench.benchmarks.longbench.tasks import SETS, TASKS, select
from kvbench.benchmarks.ruler.tasks import TASKS as RULER
from kvbench.config import CONF, build, options
from kvbench.errors import UserError
from kvbench.evaluation.settings import build_settings
from kvbench.models import model_spec
from kvbench.papers.captions import title
from kvbench.papers.columns import columns
from kvbench.papers.experiment import Experiment, chosen_methods, load, names
from kvbench.papers.published import COLUMNS, items, published
from kvbench.run.request import check
from tests.support.paths import DATA

NAMES = names()


@cache
def composed(name: str, *overrides: str) -> tuple[dict, DictConfig]:
    """What `load` gives, and Hydra's own part of it; made once, to be read only."""
    with initialize_config_dir(str(CONF), version_base="1.3"):
        whole = compose("config", [f"+experiment={name}", *overrides], return_hydra_config=True)
    run = OmegaConf.masked_copy(whole, [key for key in whole if key != "hydra"])
    return OmegaConf.to_container(run, resolve=True), whole.hydra


def config(name: str, model: str | None = None) -> dict:
    """The configuration for one of the experiment's models, its first one where none is named."""
    first = composed(name)[0]
    return first if model in (None, first["model"]["name"]) else composed(name, f"model={model}")[0]


# what a run does not measure: counted, or a benchmark of its own
NOT_MEASURED = {"pyramidkv_table2": {"memory_mb", "kv_share"}}
METRICS = {"average", "needle", "kv_compression", "layer_compression"}
SPEED = {"tokens_per_s", "latency_s", "allocation_s", "selection_s", "memory_mb", "kv_share", "throughput"}


def column_names(experiment: Experiment) -> list[str]:
    """The columns, each of LongBench's task sets as its tasks."""
    return [name for column in experiment.columns for name in SETS.get(column, (column,))]


def settings_of(cfg: dict) -> list:
    return build_settings(chosen_methods(copy.deepcopy(cfg)), cfg["ratio"], cfg["budget"])


# benchmarks whose data are elsewhere, with what is here
RULER_DATA = DATA / "ruler"
OFFLINE = {
    "Speed": {},
    "PyramidKVNeedle": {"needle_file": None},
    "Ruler": {
        "squad": str(RULER_DATA / "squad_normans.json"),
        "hotpotqa": str(RULER_DATA / "hotpotqa.json"),
        "num_samples": 1,
    },
}


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """A folder with one row of each LongBench task."""
    folder = tmp_path_factory.mktemp("rows")
    for task in TASKS:
        answer = {"passage_retrieval_en": "Paragraph 1", "passage_retrieval_zh": "段落1"}.get(task, "1")
        row = {"_id": task, "input": "?", "context": "words", "answers": [answer], "length": 1, "all_classes": ["1"]}
        (folder / f"{task}.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    return folder


def test_the_files_are_the_tables_and_figures_of_the_four_papers():
    """All but what needs probes of single layers, and drawings without data."""
    figures = {
        "pyramidkv": [4, *range(5, 15)],
        "simlayerkv": [3, 5, 6],
        "spindlekv": [5, 6],
        "pooling_merge": [6, 7, 8],
    }
    tables = {
        "pyramidkv": [1, 2, *range(4, 12)],
        "simlayerkv": [1, 2, 3, 7, 8, 9, 10, 11, 12],
        "spindlekv": [1, 2, 4, 5, 6, *range(8, 12)],
        "pooling_merge": [2],
    }
    expected = {f"{paper}_fig{number}" for paper in figures for number in figures[paper]}
    assert expected | {f"{paper}_table{number}" for paper in tables for number in tables[paper]} <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_an_experiment_composes_and_builds_for_each_of_its_models(name, rows):
    experiment = Experiment.of(config(name))
    assert experiment.name == name
    assert set(experiment.models) <= set(options("model"))
    assert config(name)["model"]["name"] == experiment.models[0]
    paper, item = name.rsplit("_", 1)
    assert experiment.paper.lower().replace("-", "_") == paper
    assert experiment.item == item.replace("table", "Table ").replace("fig", "Figure ")
    for model in experiment.models:
        cfg = config(name, model)
        settings = settings_of(cfg)
        assert len({setting.label for setting in settings}) == len(settings) >= 2
        here = cfg["benchmark"] | OFFLINE.get(cfg["benchmark"]["_target_"].rpartition(".")[2], {"data_dir": str(rows)})
        check(settings, build(here, "benchmark"), model_spec(cfg["model"]), cfg["limit"])  # the longest prompt fits


@pytest.mark.parametrize("name", NAMES)
def test_parameters_are_for_methods_that_exist(name):
    """A method's parameters without its file are for one that a derived file leaves out, not for a misspelt one."""
    cfg = config(name)
    known = set(options("method")) | set(chosen_methods(cfg))
    assert set(cfg["method"]) <= known
    assert {method for method in Experiment.of(cfg).methods if method not in known} == set()


@pytest.mark.parametrize("name", NAMES)
def test_several_models_are_a_sweep(name):
    params = OmegaConf.select(composed(name)[1], "sweeper.params") or {}
    models = Experiment.of(config(name)).models
    assert len(models) == 1 or "model" in params
    assert params.get("model", models[0]) == ",".join(models)


@pytest.mark.parametrize("name", NAMES)
def test_columns_are_tasks_or_metrics_that_the_run_makes(name):
    cfg = config(name)
    tasks = set(column_names(Experiment.of(cfg))) - METRICS
    kind = cfg["benchmark"]["_target_"].rpartition(".")[2]
    if kind == "LongBench":
        assert tasks <= {task.name for task in select(cfg["benchmark"]["tasks"])}
    elif kind == "Ruler":
        assert cfg["benchmark"]["tasks"] == "all"
        assert all(any(task.startswith(column) for task in RULER) for column in tasks)
    elif kind == "Speed":
        assert tasks and tasks <= SPEED
    else:
        assert not tasks


def data(name: str) -> tuple[Experiment, pd.DataFrame]:
    """An experiment and its published figures; of a figure whose numbers are in a table, its own models' rows."""
    experiment = Experiment.of(config(name))
    if experiment.published is None:
        return experiment, pd.DataFrame(columns=COLUMNS)
    figures = published(experiment.published)
    return experiment, figures[figures["model"].isin(experiment.models)]


def chosen_rows(figures: pd.DataFrame, where: dict[str, str]) -> pd.DataFrame:
    for column, value in where.items():
        figures = figures[figures[column] == value]
    return figures


def test_only_figures_and_what_has_no_number_go_without_published_data():
    without = [name for name in NAMES if Experiment.of(config(name)).published is None]
    assert without and all("_fig" in name for name in without)


def test_all_published_tables_have_a_file_or_a_reason():
    left_out = {
        *("pyramidkv_table3", "spindlekv_table3"),  # data sets; hyper-parameters
        "pyramidkv_figure5",  # its one number is in Table 11 too, with all others
    }
    used = {Experiment.of(config(name)).published for name in NAMES} - {None}
    tables = {item for item in items() if not item.endswith("_text")}
    assert used <= tables | {"simlayerkv_text"}  # its throughput stands in the text
    assert tables - used <= left_out


@pytest.mark.parametrize("name", NAMES)
def test_methods_are_rows_of_the_published_data_and_all_of_them(name):
    experiment, figures = data(name)
    seen = figures.iloc[:0].index
    for method in chosen_methods(config(name)):
        if method == "_target_" or experiment.rows(method) is None or experiment.published is None:
            continue
        found = chosen_rows(figures, experiment.rows(method))
        assert len(found), f"{method} is no row of {experiment.published}"
        seen = seen.union(found.index)
    assert set(figures["method"][~figures.index.isin(seen)]) == set()


@pytest.mark.parametrize("name", [name for name in NAMES if "_table" in name])
def test_models_and_columns_are_the_published_ones(name):
    experiment, figures = data(name)
    assert set(published(experiment.published)["model"]) == set(experiment.models)
    measured = [column for column in figures["column"].unique() if column not in NOT_MEASURED.get(name, ())]
    assert sorted(column_names(experiment)) == sorted(measured)


@pytest.mark.parametrize("name", NAMES)
def test_ratios_and_budgets_are_the_published_ones(name):
    experiment, figures = data(name)
    for model in experiment.models:
        of_model = figures[figures["model"] == model]
        asked = {}
        for setting in settings_of(config(name, model)):
            asked.setdefault(setting.name, set()).add(setting.budget or setting.ratio)
        for method, values in asked.items():
            where = experiment.rows(method)
            printed = chosen_rows(of_model, where)[["budget", "ratio"]] if where is not None else of_model.iloc[:0]
            printed = {*printed["budget"].dropna().astype(int), *printed["ratio"].dropna()} - {1.0}
            if not printed or values == {None}:  # the paper prints none, or they are outcomes of the method
                continue
            if "_table" in name:
                assert values == printed, method
            if experiment.show == "curve":  # of which the paper may print some points only
                assert values & printed, method
            else:
                assert values <= printed, method


@pytest.mark.parametrize("name", NAMES)
def test_a_scaled_down_run_composes(name):
    cfg = load(name, "model=smollm2-135m", "limit=2")
    assert cfg["model"]["name"] == "smollm2-135m" and cfg["limit"] == 2
    assert len(settings_of(cfg)) == len(settings_of(config(name)))


@pytest.mark.parametrize("name", ["pyramidkv_fig5", "simlayerkv_table1", "simlayerkv_table3", "spindlekv_table1"])
def test_the_caption_of_a_scaled_down_run_says_so(name):
    experiment = Experiment.of(config(name))
    assert title(load(name, "model=smollm2-135m", "limit=2")) == (
        f"{experiment.paper} {experiment.item}, scaled down: smollm2-135m in place of "
        f"{' and '.join(experiment.models)}; at most 2 samples of a task"
    )


@pytest.mark.parametrize("name", ["pyramidkv_table11", "simlayerkv_table7", "spindlekv_fig5"])
def test_a_run_as_published_is_called_by_paper_and_item_alone(name):
    experiment = Experiment.of(config(name))
    for model in experiment.models:
        assert title(config(name, model)) == f"{experiment.paper} {experiment.item}"


# --- what a caption says


@pytest.mark.parametrize(
    "overrides, told",
    [
        (["benchmark.max_length=600"], "scaled down: max_length 600"),
        (["benchmark.tasks=[trec,lcc]"], "scaled down: tasks trec, lcc"),
        (["benchmark.data_dir=/some/where/rows"], "changed: data from rows"),
        (["benchmark.prompts_file=/some/where/prompts.json"], "changed: prompts_file prompts.json"),
        (["limit=1", "question=hidden"], "scaled down: at most 1 sample of a task, changed: question hidden"),
        (["method=[full,spindlekv_paper]"], "changed: without pyramidinfer; without pyramidkv_paper"),
        (["method.spindlekv_paper.theta_k=0.9"], "changed: spindlekv_paper.theta_k 0.9"),
        (["method.spindlekv_paper.ratio=[0.2,0.1]"], "changed: spindlekv_paper.ratio 0.2, 0.1"),
        (["benchmark=niah"], "scaled down: benchmark NeedleInAHaystack"),
        (["output_dir=/elsewhere", "model.dtype=bfloat16", "shards=2"], ""),
    ],
)
def test_a_caption_tells_what_a_run_does_otherwise(overrides, told):
    if overrides == ["benchmark=niah"]:  # takes LongBench's keys away, which the experiment gives
        overrides = [*overrides, "~benchmark.tasks", "~benchmark.prompt_protocol"]
    assert title(load("spindlekv_table1", *overrides)) == "SpindleKV Table 1" + (told and f", {told}")


def test_a_run_of_no_experiment_has_no_title():
    with initialize_config_dir(str(CONF), version_base="1.3"):
        assert title(OmegaConf.to_container(compose("config"), resolve=True)) == ""


def test_an_experiment_of_ones_own_is_told_by_model_alone():
    cfg = load("spindlekv_table1", "limit=3")
    cfg["experiment"] |= {"name": "mine", "models": ["llama3-8b"]}
    assert (
        title(cfg)
        == "SpindleKV Table 1, scaled down: mistral-7b-v0.2 in place of llama3-8b; at most 3 samples of a task"
    )


# --- what a file may say


@pytest.mark.parametrize(
    "changes, told",
    [
        ({"modles": ["a"]}, "unknown key in experiment 'modles'. Did you mean 'models'"),
        ({"show": "tabel"}, "unknown experiment.show 'tabel'. Did you mean 'table'"),
        ({"models": []}, r"experiment.models=\[\] must be a name or a list of names"),
        ({"models": [3]}, r"experiment.models=\[3\] must be a name or a list of names"),
        ({"columns": ["average", 3]}, "item 2 of experiment.columns=3 must be a text"),
        ({"paper": None}, "experiment.paper=None must be a text"),
        ({"paper": ""}, "experiment.paper='' must be a text that is not empty"),
        ({"methods": ["spindle"]}, r"experiment.methods=\['spindle'\] must be a mapping"),
        ({"x": "beta"}, "experiment.x='beta' is the axis of a curve: it needs show=curve, not table"),
        ({"item": ...}, "experiment.item is missing"),
    ],
)
def test_a_mistake_in_an_experiment_is_told(changes, told):
    node = {**load("spindlekv_table1")["experiment"], **changes}
    with pytest.raises(UserError, match=told):
        Experiment.of({"experiment": {key: value for key, value in node.items() if value is not ...}})


def test_an_unknown_experiment_is_told_with_the_nearest():
    with pytest.raises(UserError, match=r"unknown experiment 'spindle_table1'. Did you mean 'spindlekv_table1'"):
        load("spindle_table1")


def test_a_single_column_and_a_task_set_are_columns():
    cfg = load("spindlekv_table1", "benchmark.tasks=simlayerkv5")
    node = cfg["experiment"] | {"columns": "simlayerkv5"}
    experiment = Experiment.of({"experiment": node})
    assert experiment.columns == ["simlayerkv5"]
    assert [column.name for column in columns(experiment.columns, cfg["benchmark"], cfg["benchmark"])] == [
        *("multifieldqa_zh", "2wikimqa", "vcsum", "lsht", "passage_retrieval_zh"),
    ]
