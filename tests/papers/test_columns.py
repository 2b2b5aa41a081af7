"""The columns of a published item: whose tasks they have, and what has none."""

from collections import Counter
from typing import ClassVar

import pytest

from kvbench.benchmarks import OwnPrompts
from kvbench.configuration import Experiment, configured
from kvbench.errors import UserError
from kvbench.papers.columns import columns
from kvbench.papers.experiment import load
from tests.support.experiments import config


def test_tasks_that_another_benchmark_makes_have_the_columns_of_their_mean():
    for benchmark, tasks in (("ruler_kvpress", 13), ("longbench_kvpress", 16), ("longbench_e", 13)):
        node = configured([f"benchmark={benchmark}"]).benchmark
        (average,) = columns(["average"], node, node)
        assert len(average.parts) == tasks


def test_a_column_of_rulers_needles_has_every_task_of_this_kind():
    node = configured(["benchmark=ruler"]).benchmark
    needles, questions = columns(["niah", "qa"], node, node)
    assert len(needles.tasks) == 8 and questions.tasks == ("qa_1", "qa_2")


def test_an_average_is_the_plain_mean_of_its_strata():
    node = configured(["benchmark=ruler", "benchmark.tasks=[niah_single_1,niah_single_2,niah_single_3,qa_1,qa_2,vt]"])
    average = columns(["niah_single", "qa", "vt", "average"], node.benchmark, node.benchmark)[-1]
    shares = {task: count / len(average.strata) for task, count in Counter(average.strata).items()}
    thirds, halves = dict.fromkeys(average.parts[0].tasks, 1 / 9), dict.fromkeys(average.parts[1].tasks, 1 / 6)
    assert shares == pytest.approx(thirds | halves | {"vt": 1 / 3})
    assert columns(["niah_single"], node.benchmark, node.benchmark)[0].strata == [*thirds]


def test_nothing_that_a_place_of_the_data_names_is_imported():
    node = configured(["benchmark=ruler"]).benchmark | {"data_dir": {"_target_": "a_strangers_module.Class"}}
    assert len(columns(["average"], node, node)[0].parts) == 13


def test_a_run_of_none_of_the_columns_tasks_is_one_line():
    cfg = config("simlayerkv_table11")
    with pytest.raises(
        UserError, match=r"benchmark\.tasks=samsum has no task of the item's columns: narrativeqa, vcsum, lcc"
    ):
        columns(cfg.experiment.columns, cfg.benchmark | {"tasks": ["samsum"]}, cfg.benchmark)


def test_a_single_column_and_a_task_set_are_columns():
    cfg = load("spindlekv_table1", "benchmark.tasks=simlayerkv5")
    node = cfg.plain["experiment"] | {"columns": "simlayerkv5"}
    experiment = Experiment.from_section(node)
    assert experiment.columns == ["simlayerkv5"]
    assert [column.name for column in columns(experiment.columns, cfg.benchmark, cfg.benchmark)] == [
        *("multifieldqa_zh", "2wikimqa", "vcsum", "lsht", "passage_retrieval_zh"),
    ]


def test_a_benchmark_that_does_not_know_its_tasks_has_the_columns_of_the_records():
    """Columns were LongBench's and RULER's alone, and an experiment with other prompts was refused."""
    node = configured(["benchmark=jsonl"]).benchmark
    shown = columns(["rivers", "average"], node, node, recorded=["cities", "rivers"])
    assert [(column.name, column.every_task, column.whole) for column in shown] == [
        ("rivers", ["rivers"], True),
        ("average", ["rivers"], True),
    ]
    assert columns(["average"], node, node, recorded=["cities", "rivers"])[0].every_task == ["cities", "rivers"]
    with pytest.raises(
        UserError, match=r"unknown column in experiment\.columns 'river'. Did you mean 'rivers'\? Allowed"
    ):
        columns(["river"], node, node, recorded=["cities", "rivers"])
    with pytest.raises(UserError, match="the records have no task of the item's columns: average"):
        columns(["average"], node, node)


def test_the_columns_of_another_benchmark_with_sets_of_tasks_are_its_own():
    node = configured(["benchmark=infinitebench"]).benchmark
    shown = columns(["code", "kv_retrieval"], node, node)
    assert [column.name for column in shown] == ["code_run", "code_debug", "kv_retrieval"]
    assert len(columns(["average"], node, node)[0].parts) == 12


def test_a_benchmark_of_a_plug_in_says_which_tasks_and_columns_it_has():
    node = {"_target_": f"{__name__}.Zoo", "tasks": "all"}
    tame, average = columns(["tame", "average"], node, node)
    assert (tame.tasks, tame.short, average.whole) == (("cat", "dog"), "TM", True)
    half, _ = columns(["tame", "average"], node | {"tasks": ["cat", "owl"]}, node)
    assert (half.tasks, half.whole) == (("cat",), False)


class Zoo(OwnPrompts):
    """A class that says what tables need of its tasks."""

    task_sets: ClassVar = {name: (name,) for name in ("cat", "dog", "owl")} | {"all": ("cat", "dog", "owl")}
    task_means: ClassVar = {"tame": ("cat", "dog")}
    headers: ClassVar = {"tame": "TM"}
