"""The columns of a published item: whose tasks they have, and what has none."""

from collections import Counter

import pytest

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
