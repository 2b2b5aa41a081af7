"""What holds for every file of conf/experiment: it composes and builds."""

import json
import re

import pytest
from omegaconf import OmegaConf

from kvbench.benchmarks import Benchmark
from kvbench.benchmarks.longbench.tasks import TASKS
from kvbench.benchmarks.ruler.tasks import TASKS as RULER
from kvbench.config import options
from kvbench.configuration import Experiment
from kvbench.errors import UserError
from kvbench.evaluation.settings import settings_of
from kvbench.papers.columns import columns, requested_tasks
from kvbench.papers.cost import cost, row_of
from kvbench.papers.experiment import load
from kvbench.papers.recorded_costs import costs
from kvbench.runner.request import check
from kvbench.utils.targets import build
from tests.support.experiments import NAMES, column_names, composed, config
from tests.support.paths import DATA

pytestmark = pytest.mark.heavy

METRICS = {"average", "needle", "kv_compression", "layer_compression"}


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


@pytest.mark.parametrize("name", NAMES)
def test_an_experiment_composes_and_builds_for_each_of_its_models(name, rows):
    experiment = config(name).experiment
    assert experiment.name == name
    assert set(experiment.models) <= set(options("model"))
    assert config(name).model.name == experiment.models[0]
    told = re.sub("[^a-z0-9]", "", f"{experiment.paper} {experiment.item}".lower()).replace("figure", "fig")
    assert name.replace("_", "") == told
    for model in experiment.models:
        cfg = config(name, model)
        settings = settings_of(cfg)
        assert len({setting.label for setting in settings}) == len(settings) >= 2
        here = cfg.benchmark | OFFLINE.get(cfg.benchmark["_target_"].rpartition(".")[2], {"data_dir": str(rows)})
        check(settings, build(here, "benchmark", Benchmark), cfg.model)  # the longest prompt fits


@pytest.mark.parametrize("name", NAMES)
def test_the_file_of_costs_is_what_the_configurations_give(name):
    models = config(name).experiment.models
    assert costs()[name] == row_of(name, cost([config(name, model) for model in models])), (
        "run python -m scripts.maintenance.make_costs"
    )


@pytest.mark.parametrize("name", NAMES)
def test_parameters_are_for_methods_that_exist(name):
    """A method's parameters without its file are for one that a derived file leaves out, not for a misspelt one."""
    cfg = config(name)
    known = set(options("method")) | set(cfg.methods)
    assert set(cfg.method) <= known
    assert {method for method in cfg.experiment.methods if method not in known} == set()


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith("pyramidkv") and name != "pyramidkv_fig2"])
def test_pyramidkvs_experiments_name_todays_script_and_that_of_june_2024(name):
    experiment = config(name).experiment
    assert "pyramidkv_paper_2024_06" in " ".join(experiment.chosen)
    early = [f"{preset}_2024_06" for preset in experiment.methods if f"{preset}_2024_06" in options("method")]
    assert all(experiment.rows(preset) == experiment.rows(preset[: -len("_2024_06")]) for preset in early)


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith("simlayerkv")])
def test_simlayerkvs_longbench_prompts_have_a_chat_template_for_llama_2_alone(name):
    experiment = config(name).experiment
    if config(name).benchmark["_target_"] != "kvbench.benchmarks.LongBench":
        return
    for model in experiment.models:
        template = "auto" if model == "llama2-7b-chat" else "none"
        assert config(name, model).model.chat_template == template
    assert any("raw text" in choice for choice in experiment.chosen)


@pytest.mark.parametrize("name", NAMES)
def test_several_models_are_a_sweep(name):
    params = OmegaConf.select(composed(name)[1], "sweeper.params") or {}
    models = config(name).experiment.models
    assert len(models) == 1 or "model" in params
    assert params.get("model", models[0]) == ",".join(models)


@pytest.mark.parametrize("name", NAMES)
def test_columns_are_tasks_or_metrics_that_the_run_makes(name):
    cfg = config(name)
    tasks = set(column_names(cfg.experiment)) - METRICS
    kind = cfg.benchmark["_target_"].rpartition(".")[2]
    if kind == "LongBench":
        assert tasks <= set(requested_tasks(cfg.benchmark))
    elif kind == "Ruler":
        assert cfg.benchmark["tasks"] == "all"
        assert all(any(task.startswith(column) for task in RULER) for column in tasks)
    elif kind == "Speed":
        assert tasks and tasks <= SPEED
    else:
        assert not tasks


@pytest.mark.parametrize("name", NAMES)
def test_a_scaled_down_run_composes(name):
    cfg = load(name, "model=smollm2-135m", "limit=2")
    assert cfg.model.name == "smollm2-135m" and cfg.limit == 2
    assert len(settings_of(cfg)) == len(settings_of(config(name)))


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
        Experiment.of({key: value for key, value in node.items() if value is not ...})


def test_an_unknown_experiment_is_reported_with_the_nearest():
    with pytest.raises(UserError, match=r"unknown experiment 'spindle_table1'. Did you mean 'spindlekv_table1'"):
        load("spindle_table1")


def test_a_single_column_and_a_task_set_are_columns():
    cfg = load("spindlekv_table1", "benchmark.tasks=simlayerkv5")
    node = cfg.plain["experiment"] | {"columns": "simlayerkv5"}
    experiment = Experiment.of(node)
    assert experiment.columns == ["simlayerkv5"]
    assert [column.name for column in columns(experiment.columns, cfg.benchmark, cfg.benchmark)] == [
        *("multifieldqa_zh", "2wikimqa", "vcsum", "lsht", "passage_retrieval_zh"),
    ]
