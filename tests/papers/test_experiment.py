"""What holds for every file of conf/experiment: it composes and builds, and has the published data's methods, models,
columns, ratios and budgets. One test for each, as composing takes most of the time."""

import json
import re
from functools import cache
from pathlib import Path

import pandas as pd
import pytest
from omegaconf import OmegaConf

from kvbench.benchmarks import Benchmark
from kvbench.benchmarks.longbench.tasks import TASKS
from kvbench.benchmarks.ruler.tasks import TASKS as RULER
from kvbench.configuration import Experiment
from kvbench.configuration.conf import options
from kvbench.errors import UserError
from kvbench.evaluation.settings import Setting, is_full, settings_of
from kvbench.papers.columns import columns, requested_tasks
from kvbench.papers.cost import cost, row_of
from kvbench.papers.experiment import load
from kvbench.papers.published import COLUMNS, items, published
from kvbench.papers.recorded_costs import costs
from kvbench.runner.request import check
from kvbench.utils.targets import build
from scripts.maintenance.make_costs import every_run
from tests.support.experiments import NAMES, column_names, composed, config
from tests.support.paths import DATA

pytestmark = pytest.mark.heavy

METRICS = {"average", "needle", "kv_compression", "layer_compression"}


# what a run does not measure: counted, or a benchmark of its own
NOT_MEASURED = {"pyramidkv_table2": {"memory_mb", "kv_share"}}


SPEED = {"tokens_per_s", "latency_s", "allocation_s", "selection_s", "memory_mb", "kv_share", "throughput"}


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
    """A folder with one row of each LongBench task and of each of RULER's, as kvpress has them."""
    folder = tmp_path_factory.mktemp("rows")
    for task in TASKS:
        answer = {"passage_retrieval_en": "Paragraph 1", "passage_retrieval_zh": "段落1"}.get(task, "1")
        row = {"_id": task, "input": "?", "context": "words", "answers": [answer], "length": 1, "all_classes": ["1"]}
        (folder / f"{task}.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    kvpress = [
        {"context": "words", "question": "?", "answer_prefix": "", "task": task, "answer": ["1"], "max_new_tokens": 1}
        for task in RULER
    ]
    (folder / "4096.jsonl").write_text("".join(json.dumps(row) + "\n" for row in kvpress), encoding="utf-8")
    return folder


def test_the_files_include_the_tables_and_figures_of_the_four_papers():
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


@cache
def settings(name: str, model: str) -> list[Setting]:
    return settings_of(config(name, model))


def data(name: str) -> tuple[Experiment, pd.DataFrame]:
    """An experiment and its published figures; of a figure whose numbers are in a table, its own models' rows."""
    experiment = config(name).experiment
    if experiment.published is None:
        return experiment, pd.DataFrame(columns=COLUMNS)
    figures = published(experiment.published)
    return experiment, figures[figures["model"].isin(experiment.models)]


def chosen_rows(figures: pd.DataFrame, where: dict[str, str]) -> pd.DataFrame:
    for column, value in where.items():
        figures = figures[figures[column] == value]
    return figures


@pytest.mark.parametrize("name", NAMES)
def test_an_experiment(name, rows):
    experiment, figures = data(name)
    has_its_name(name, experiment)
    builds_for_each_model(name, experiment, rows)
    costs_what_is_recorded(name)
    is_a_sweep_over_several_models(name, experiment)
    gives_parameters_to_methods_that_exist(name, experiment)
    has_columns_that_its_run_makes(name, experiment)
    has_a_place_for_each_setting_on_its_axis(name, experiment)
    has_the_published_methods(name, experiment, figures)
    has_the_published_ratios_and_budgets(name, experiment, figures)
    if "_table" in name:
        has_the_published_models_and_columns(name, experiment, figures)
    if name.startswith("pyramidkv") and name != "pyramidkv_fig2":
        names_todays_script_and_that_of_june_2024(experiment)
    if name.startswith("simlayerkv") and config(name).benchmark["_target_"] == "kvbench.benchmarks.LongBench":
        has_a_chat_template_for_llama_2_alone(name, experiment)


def has_its_name(name: str, experiment: Experiment) -> None:
    assert experiment.name == name
    told = re.sub("[^a-z0-9]", "", f"{experiment.paper} {experiment.item}".lower()).replace("figure", "fig")
    assert name.replace("_", "") == told


def builds_for_each_model(name: str, experiment: Experiment, rows: Path) -> None:
    assert set(experiment.models) <= set(options("model"))
    assert config(name).model.name == experiment.models[0]
    for model in experiment.models:
        cfg, chosen = config(name, model), settings(name, model)
        assert len({setting.label for setting in chosen}) == len(chosen) >= 2
        here = cfg.benchmark | OFFLINE.get(cfg.benchmark["_target_"].rpartition(".")[2], {"data_dir": str(rows)})
        check(chosen, build(here, "benchmark", Benchmark), cfg.model)  # the longest prompt fits


def costs_what_is_recorded(name: str) -> None:
    """All runs that `-m` makes: of the experiment's models, and of both protocols where it sweeps over them."""
    made = row_of(name, cost(every_run(name)))
    assert costs()[name] == made, "run python -m scripts.maintenance.make_costs"


def gives_parameters_to_methods_that_exist(name: str, experiment: Experiment) -> None:
    """A method's parameters without its file are for one that a derived file leaves out, not for a misspelt one."""
    cfg = config(name)
    known = set(options("method")) | set(cfg.methods)
    assert set(cfg.method) <= known
    assert {method for method in experiment.methods if method not in known} == set()


def names_todays_script_and_that_of_june_2024(experiment: Experiment) -> None:
    assert "pyramidkv_paper_2024_06" in " ".join(experiment.chosen)
    early = [f"{preset}_2024_06" for preset in experiment.methods if f"{preset}_2024_06" in options("method")]
    assert all(experiment.rows(preset) == experiment.rows(preset[: -len("_2024_06")]) for preset in early)


def test_no_preset_is_said_to_be_the_one_of_pyramidkvs_tables():
    """No release says which scripts made them: `chosen` of the experiments."""
    assert [name for name, about in options("method").items() if "PyramidKV's tables" in about] == []


def has_a_chat_template_for_llama_2_alone(name: str, experiment: Experiment) -> None:
    for model in experiment.models:
        template = "auto" if model == "llama2-7b-chat" else "none"
        assert config(name, model).model.chat_template == template
    assert any("raw text" in choice for choice in experiment.chosen)


def is_a_sweep_over_several_models(name: str, experiment: Experiment) -> None:
    params = OmegaConf.select(composed(name)[1], "sweeper.params") or {}
    models = experiment.models
    assert len(models) == 1 or "model" in params
    assert params.get("model", models[0]) == ",".join(models)


def has_columns_that_its_run_makes(name: str, experiment: Experiment) -> None:
    cfg = config(name)
    tasks = set(column_names(experiment)) - METRICS
    kind = cfg.benchmark["_target_"].rpartition(".")[2]
    if kind == "LongBench":
        assert tasks <= set(requested_tasks(cfg.benchmark))
    elif kind == "Ruler":
        assert cfg.benchmark["tasks"] == "all"
        assert tasks <= {column.name for column in columns(experiment.columns, cfg.benchmark, cfg.benchmark)}
    elif kind == "Speed":
        assert tasks and tasks <= SPEED
    else:
        assert not tasks


def has_a_place_for_each_setting_on_its_axis(name: str, experiment: Experiment) -> None:
    if experiment.show == "curve" and experiment.x is None:
        places = [setting.ratio or setting.budget or is_full(setting) for setting in settings_of(config(name))]
        assert all(places)


def has_the_published_methods(name: str, experiment: Experiment, figures: pd.DataFrame) -> None:
    """Its methods are rows of the published data, and all of them."""
    seen = figures.iloc[:0].index
    for method in config(name).methods:
        if method == "_target_" or experiment.rows(method) is None or experiment.published is None:
            continue
        found = chosen_rows(figures, experiment.rows(method))
        assert len(found), f"{method} is no row of {experiment.published}"
        seen = seen.union(found.index)
    assert set(figures["method"][~figures.index.isin(seen)]) == set()


def has_the_published_models_and_columns(name: str, experiment: Experiment, figures: pd.DataFrame) -> None:
    assert set(published(experiment.published)["model"]) == set(experiment.models)
    measured = [column for column in figures["column"].unique() if column not in NOT_MEASURED.get(name, ())]
    assert sorted(column_names(experiment)) == sorted(measured)


def has_the_published_ratios_and_budgets(name: str, experiment: Experiment, figures: pd.DataFrame) -> None:
    for model in experiment.models:
        of_model = figures[figures["model"] == model]
        requested: dict[str, set] = {}
        for setting in settings(name, model):
            requested.setdefault(setting.name, set()).add(setting.budget or setting.ratio)
        for method, values in requested.items():
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


def test_a_scaled_down_run_composes():
    """Of each paper one with each benchmark: the model that it is for is none of the experiment's."""
    kinds = {(config(name).experiment.paper, config(name).benchmark["_target_"]): name for name in NAMES}
    for name in kinds.values():
        cfg = load(name, "model=smollm2-135m", "limit=2")
        assert cfg.model.name == "smollm2-135m" and cfg.limit == 2
        assert len(settings_of(cfg)) == len(settings(name, config(name).model.name))


def test_only_figures_what_has_no_number_and_what_no_paper_has_go_without_published_data():
    without = [name for name in NAMES if config(name).experiment.published is None]
    assert without and all("_fig" in name or name.startswith("community_") for name in without)


def test_all_published_tables_have_a_file_or_a_reason():
    left_out = {
        *("pyramidkv_table3", "spindlekv_table3"),  # data sets; hyper-parameters
        "pyramidkv_figure5",  # its one number is in Table 11 too, with all others
    }
    used = {config(name).experiment.published for name in NAMES} - {None}
    tables = {item for item in items() if not item.endswith("_text")}
    assert used <= tables | {"simlayerkv_text"}  # its throughput stands in the text
    assert tables - used <= left_out


@pytest.mark.parametrize(
    "changes, message",
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
def test_a_mistake_in_an_experiment_is_reported(changes, message):
    node = {**load("spindlekv_table1").plain["experiment"], **changes}
    with pytest.raises(UserError, match=message):
        Experiment.from_section({key: value for key, value in node.items() if value is not ...})


def test_an_unknown_experiment_is_reported_with_the_nearest():
    with pytest.raises(UserError, match=r"unknown experiment 'spindle_table1'. Did you mean 'spindlekv_table1'"):
        load("spindle_table1")


def test_longbench_v2_has_no_tasks_to_choose():
    """An experiment's table of its records was a TypeError."""
    assert requested_tasks({"_target_": "kvbench.benchmarks.LongBenchV2", "lengths": ["short"]}) == []
