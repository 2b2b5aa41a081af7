"""Tables of a run's page: scores by task."""

from kvbench.report.page.run_data import read_run
from tests.support.report_run import record, write_run


def test_samples_without_an_answer_are_in_no_tasks_score(tmp_path):
    """The page of several tasks, some of whose samples had no known answer, was a KeyError."""
    rows = [record("qa-2", "h2o 0.2", 0.0, task="qa") | {"scores": {}}]  # a setting that has no other sample
    rows += [
        record(f"{task}-{i}", setting, float(i), task=task) | ({} if i < 2 else {"scores": {}})
        for task in ("qa", "code")
        for i in range(3)
        for setting in ("full", "snapkv 0.2")
    ]
    (by_task,) = read_run(write_run(tmp_path / "run", rows))[0]["tasks"]
    assert [(row["task"], row["samples"], row["scores"]) for row in by_task["rows"]] == [
        ("qa", 2, [None, 0.5, 0.5]),
        ("code", 2, [None, 0.5, 0.5]),
        ("mean", 4, [None, 0.5, 0.5]),
    ]


def test_samples_without_a_task_are_one_more_task(tmp_path):
    """They are in the setting's score; the mean over the tasks left them out, as "mean (2 of 3)"."""
    tasks = {"qa": 1.0, "code": 0.5, None: 0.0}
    rows = [record(f"{task}-{i}", "full", score, task=task) for task, score in tasks.items() for i in range(2)]
    made, _ = read_run(write_run(tmp_path / "run", rows))
    assert [(row["task"], row["samples"], row["scores"]) for row in made["tasks"][0]["rows"]] == [
        ("qa", 2, [1.0]),
        ("code", 2, [0.5]),
        ("without a task", 2, [0.0]),
        ("mean", 6, [0.5]),
    ]
    assert made["settings"][0]["scores"]["score"][0] == 0.5
