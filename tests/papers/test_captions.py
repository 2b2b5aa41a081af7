"""Captions: what a run does otherwise than its experiment."""

import copy

import pytest
from hydra import compose, initialize_config_dir

from kvbench.configuration import resolved
from kvbench.configuration.conf import CONF
from kvbench.papers.captions import title
from kvbench.papers.experiment import load
from tests.support.experiments import config

pytestmark = pytest.mark.heavy


@pytest.mark.parametrize("name", ["pyramidkv_fig5", "simlayerkv_table1", "simlayerkv_table3", "spindlekv_table1"])
def test_the_caption_of_a_scaled_down_run_says_so(name):
    experiment = config(name).experiment
    assert title(load(name, "model=smollm2-135m", "limit=2")) == (
        f"{experiment.paper} {experiment.item}, scaled down: smollm2-135m in place of "
        f"{' and '.join(experiment.models)}; at most 2 samples of a task"
    )


@pytest.mark.parametrize("name", ["pyramidkv_table11", "simlayerkv_table7", "spindlekv_fig5"])
def test_a_run_as_published_is_called_by_paper_and_item_alone(name):
    experiment = config(name).experiment
    for model in experiment.models:
        assert title(config(name, model)) == f"{experiment.paper} {experiment.item}"


@pytest.mark.parametrize(
    "overrides, deviations",
    [
        (["benchmark.max_length=600"], "scaled down: max_length 600"),
        (["benchmark.tasks=[trec,lcc]"], "scaled down: tasks trec, lcc"),
        (["benchmark.data_dir=/some/where/rows"], "changed: data from rows"),
        (["model.path=/some/where/tiny"], "changed: weights from tiny"),
        (["benchmark.prompts_file=/some/where/prompts.json"], "changed: prompts_file prompts.json"),
        (["limit=1", "question=hidden"], "scaled down: at most 1 sample of a task, changed: question hidden"),
        (["method=[full,spindlekv_paper]"], "changed: without pyramidinfer; without pyramidkv_paper"),
        (["method.spindlekv_paper.theta_k=0.9"], "changed: spindlekv_paper.theta_k 0.9"),
        (["method.spindlekv_paper.ratio=[0.2,0.1]"], "changed: spindlekv_paper.ratio 0.2, 0.1"),
        (["benchmark=niah"], "scaled down: benchmark NeedleInAHaystack"),
        (["output_dir=/elsewhere", "model.dtype=bfloat16", "shards=2"], ""),
    ],
)
def test_a_caption_names_how_a_run_deviates(overrides, deviations):
    if overrides == ["benchmark=niah"]:  # takes LongBench's keys away, which the experiment gives
        overrides = [*overrides, "~benchmark.tasks", "~benchmark.prompt_protocol"]
    assert title(load("spindlekv_table1", *overrides)) == "SpindleKV Table 1" + (deviations and f", {deviations}")


def test_fewer_samples_of_a_task_are_scaled_down():
    assert title(load("community_8b", "benchmark.num_samples=5")) == "community 8b, scaled down: num_samples 5"


def test_a_methods_description_in_other_words_is_no_deviation():
    cfg = copy.deepcopy(load("simlayerkv_table11"))
    cfg.method["full"] |= {"about": "words of an earlier version", "title": "Full"}
    assert title(cfg) == "SimLayerKV Table 11"


def test_a_run_of_no_experiment_has_no_title():
    with initialize_config_dir(str(CONF), version_base="1.3"):
        assert title(resolved(compose("config"))) == ""


def test_an_experiment_of_ones_own_is_reported_by_model_alone():
    cfg = load("spindlekv_table1", "limit=3")
    cfg = cfg.changed(experiment={**cfg.plain["experiment"], "name": "mine", "models": ["llama3-8b"]})
    assert (
        title(cfg)
        == "SpindleKV Table 1, scaled down: mistral-7b-v0.2 in place of llama3-8b; at most 3 samples of a task"
    )
