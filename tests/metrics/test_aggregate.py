"""Scores by task: task means, means of groups, averages, and the main table's mean over tasks."""

import io

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from kvbench.benchmarks import Heatmap
from kvbench.errors import UserError
from kvbench.metrics.aggregate import DISTANCES, bounds, breakdown, check_breakdown
from kvbench.metrics.bootstrap import OF_SCORES, Interval, clustered, interval
from kvbench.report.tables.differences import pairs
from kvbench.report.tables.run_table import run_table, summarise, write_run_table
from kvbench.report.tables.task_table import TITLE, of_one, rich_task_table, task_table, write_task_table

GROUPS = {"qa": ("a", "b"), "code": ("c", "d"), "other": ("e",)}
AVERAGES = {"average 3": ("a", "b", "c"), "average 5": ("a", "b", "c", "d", "e")}


def records(scores: dict[str, dict[str, list[float]]], beside: str | None = None) -> pd.DataFrame:
    """A frame of records from scores by setting and task; `beside` is a task with a second score."""
    return pd.DataFrame(
        [
            {
                "setting": setting,
                "method": setting.split()[0],
                "ratio": None,
                "budget": None,
                "task": task,
                "sample": f"{task}:{i}",
                "r": 1.0,
                "r_bytes": 1.0,
                "scores": {"score": value} | ({"rouge": value / 2} if task == beside else {}),
                "decode_steps": 10,
                "decode_seconds": 0.5,
                "floored": False,
            }
            for setting, tasks in scores.items()
            for task, values in tasks.items()
            for i, value in enumerate(values)
        ]
    )


FULL = {"c": [0.5, 0.25, 0.25], "a": [1, 0], "b": [1 / 3]}


def rows(frame: pd.DataFrame, setting: str = "full") -> dict[str, float]:
    return dict(zip(frame["task"], frame[setting], strict=True))


def test_a_task_is_100_times_its_mean_in_two_digits_in_the_order_of_the_groups():
    frame = breakdown(records({"full": FULL, "snapkv 0.2": {"a": [0, 0], "b": [0], "c": [0, 0, 1]}}), GROUPS, None)
    tasks = frame[frame.kind == "task"]
    assert tasks["task"].tolist() == ["a", "b", "c"]
    assert tasks["full"].tolist() == [50, 33.33, 33.33]
    assert tasks["snapkv 0.2"].tolist() == [0, 0, 33.33]
    assert tasks["samples"].tolist() == [2, 1, 3]


def test_groups_and_averages_are_means_of_the_printed_scores_whatever_the_number_of_samples():
    frame = breakdown(records({"full": FULL}), GROUPS, AVERAGES)
    table = rows(frame)
    assert table["qa"] == pytest.approx((50 + 33.33) / 2, abs=0.006)
    assert table["average 3"] == 38.89  # (50 + 33.33 + 33.33) / 3 = 38.8867
    assert "average 5" not in table
    assert "code" not in table  # a single task needs no mean
    assert frame["kind"].tolist() == ["task"] * 3 + ["group", "average"]
    assert frame["samples"].tolist() == [2, 1, 3, 3, 6]


def test_an_average_is_named_only_when_all_its_tasks_are_there():
    few = rows(breakdown(records({"full": {"a": [1], "b": [0]}}), GROUPS, AVERAGES))
    assert few["average of 2 tasks"] == 50
    assert not set(AVERAGES) & set(few)
    four = rows(breakdown(records({"full": FULL | {"d": [1 / 3]}}), GROUPS, AVERAGES))
    assert four["average 3"] == 38.89
    assert four["average of 4 tasks"] == 37.5  # (50 + 3 * 33.33) / 4 = 37.4975
    every = rows(breakdown(records({"full": FULL | {"d": [1], "e": [0]}}), GROUPS, AVERAGES))
    assert {"average 3", "average 5"} < set(every)
    assert not any(name.startswith("average of") for name in every)
    alone = rows(breakdown(records({"full": {"a": [1]}}), GROUPS, AVERAGES))
    assert list(alone) == ["a"]


def test_a_group_with_tasks_missing_says_how_many_it_has():
    frame = breakdown(records({"full": {"x": [1], "y": [0]}}), {"three": ("x", "y", "z")}, None)
    assert frame["task"].tolist() == ["x", "y", "three (2 of 3)"]


def test_a_setting_without_a_task_has_no_mean_of_it():
    frame = breakdown(records({"full": FULL, "h2o": {"a": [1, 1], "c": [0]}}), GROUPS, AVERAGES)
    h2o = rows(frame, "h2o")
    assert h2o["a"] == 100
    assert np.isnan([h2o["b"], h2o["qa"], h2o["average 3"]]).all()
    assert "| b | 1 | 0.3333 | – |" in task_table(of_one(frame)).markdown()


def test_the_tables_by_task_are_written_and_the_same_when_made_twice(tmp_path):
    made = records({"full": FULL})
    frame, summary = of_one(breakdown(made, GROUPS, AVERAGES)), summarise(made, ["score"])
    texts = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        texts.append([path.read_bytes() for path in write_task_table(frame, summary, tmp_path / name, "the caption")])
    assert texts[0][:2] == texts[1][:2]
    csv, markdown, latex = (text.decode() for text in texts[0])
    assert csv.splitlines()[:2] == ["kind,task,samples,full", "task,a,2,0.5"]
    assert markdown.splitlines()[0] == "the caption"
    assert "| average 3 | 6 | 0.3889 |" in markdown and "& 0.3889 \\\\" in latex
    assert "different samples" not in markdown + latex
    fewer = summarise(records({"full": FULL, "h2o": {"a": [1, 1]}}), ["score"])
    written = write_task_table(frame.assign(h2o=1.0), fewer, tmp_path / "a", "the caption")[1:]
    assert all("ettings have different samples: compare only" in path.read_text() for path in written)
    assert TITLE in markdown


def test_the_terminal_table_has_every_row():
    console = Console(width=80, file=io.StringIO())
    console.print(rich_task_table(of_one(breakdown(records({"full": FULL, "h2o": FULL}), GROUPS, AVERAGES))))
    lines = [line.split() for line in console.file.getvalue().splitlines() if line.strip()]
    assert " ".join(lines[0]) == TITLE
    assert lines[1] == ["task", "samples", "FullKV", "H2O"]
    assert ["a", "2", "0.5000", "0.5000"] in lines
    assert ["average", "3", "6", "0.3889", "0.3889"] in lines


def test_a_settings_score_is_the_mean_over_tasks_not_over_samples():
    frame = records({"full": {"a": [1.0] * 8, "b": [0.0] * 2}})
    assert summarise(frame, ["score"])["score"][0] == 0.5
    assert summarise(frame.drop(columns="task"), ["score"])["score"][0] == 0.8


def test_samples_without_a_task_among_others_are_one_more_task():
    """The table left them out, and the differences below it counted them."""
    frame = records({"full": {"a": [1.0] * 4, "b": [0.0] * 2}, "h2o 0.2": {"a": [1.0] * 4, "b": [0.5] * 2}})
    frame["task"] = frame["task"].where(frame["task"] == "a", None)
    full, h2o = summarise(frame, ["score"]).to_dict("records")
    assert (full["score"], h2o["score"], full["scored"]) == (0.5, 0.75, 6)
    (pair,) = pairs(frame, "score").to_dict("records")
    assert pair["difference"] == full["score"] - h2o["score"] and full["low"] < full["high"]


def test_a_score_that_few_tasks_have_is_the_mean_of_those(tmp_path):
    frame = records({"full": {"a": [1.0, 0.5], "b": [0.0, 0.2]}}, beside="a")
    summary = summarise(frame, ["score", "rouge"])
    assert summary["rouge"][0] == 0.375
    none = summarise(records({"full": {"b": [0.0, 0.2]}}), ["score", "rouge"])
    assert run_table(none, ["score", "rouge"], "").rows[0][6] == "–"
    assert "nan" not in write_run_table(none, ["score", "rouge"], tmp_path, "caption")[1].read_text()


@pytest.mark.parametrize("tasks", [True, False])
def test_an_interval_is_of_the_samples_that_have_the_score(tasks):
    """A row without a known answer cost the interval of all others, which the table counted it among."""
    frame = records({"full": {"a": [1.0, 0.0] * 3 + [0.5], "b": [0.2] * 4, "c": [0.0, 0.1]}})
    unscored = frame["sample"].isin(["a:6", "c:0", "c:1"])
    frame["scores"] = frame["scores"].where(~unscored, [{}] * len(frame))
    frame = frame if tasks else frame.drop(columns="task")
    summary, alone = (summarise(rows, ["score"]) for rows in (frame, frame[~unscored]))
    assert summary[["low", "high", "scored", "units"]].equals(alone[["low", "high", "scored", "units"]])
    assert summary["low"][0] < summary["score"][0] < summary["high"][0]
    (note,) = run_table(summary, ["score"], "").notes
    assert note == "95 % interval: bootstrap over 10 texts or problems drawn independently"


def test_the_interval_is_resampled_within_tasks():
    rng = np.random.default_rng(0)
    strata = [rng.normal(0, 0.01, 50).tolist(), rng.normal(1, 0.01, 10).tolist()]
    low, high = clustered(strata, [range(50), range(50, 60)])
    assert low < np.mean([np.mean(values) for values in strata]) < high
    assert high - low < 0.01  # the tasks' distance does not widen it, as it does over pooled samples
    pooled = interval([value for values in strata for value in values])
    assert pooled[1] - pooled[0] > 0.1
    frame = records({"full": {"a": strata[0], "b": strata[1]}})
    assert summarise(frame, ["score"])[["low", "high"]].iloc[0].tolist() == [low, high]


def test_one_stratum_is_the_plain_bootstrap_and_single_values_have_no_interval():
    values = np.random.default_rng(1).random(30).tolist()
    assert clustered([values], [range(30)]) == interval(values)
    assert np.isnan(clustered([values, [0.5]], [range(30), [0]])).all()
    assert np.isnan(clustered([], [])).all()
    one = summarise(records({"full": {"a": [0.3], "b": [0.4]}}), ["score"])
    assert run_table(one, ["score"], "").rows[0][5] == "–"


def test_fullkvs_distance_from_itself_is_known_and_its_likelihood_is_not():
    known = {"top1": 1, "agreed": 1, "kl": 0, "kl_at_least": 0, "answer_loglik": 0}
    assert {name: bounds(name, full=True) for name in known} == {name: Interval(x, x) for name, x in known.items()}
    for name in {*DISTANCES} - {*known}:
        assert bounds(name, full=True) == bounds(name) == Interval(0, float("inf"))
    assert bounds("score", full=True) == OF_SCORES


def test_a_benchmarks_own_table_by_task_has_the_columns_that_tables_read():
    """They were looked up in it after the last sample: a traceback named pandas and a key."""
    table = breakdown(records({"full": FULL}), GROUPS, None)
    check_breakdown(table.assign(full=np.nan), "Mine")
    others = [
        ({"full": 1}, "an object of the type dict"),
        (table.drop(columns=["kind", "samples"]), "a table without kind, samples"),
        (table.assign(full="good"), "texts in its column 'full'"),
    ]
    for other, what in others:
        with pytest.raises(
            UserError, match=f"Mine.breakdown returned {what}: a data frame with the columns kind, task"
        ):
            check_breakdown(other, "Mine")
    with pytest.raises(UserError, match="the cells of a Heatmap have no column depth, length"):
        Heatmap(records({"full": FULL}), "score")
