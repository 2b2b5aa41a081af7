"""kvpress's samples of RULER: read from every form of the data set, hidden questions, official scores."""

import json
from dataclasses import replace

import datasets
import pandas as pd
import pytest

from kvbench.benchmarks.ruler import KVPressRuler
from kvbench.benchmarks.ruler.tasks import TASKS as RULER
from kvbench.errors import UserError

ROWS = [
    {
        "context": f"Many words.\nThe special magic number is {number}.\n",
        "question": "What is the special magic number?",
        "answer_prefix": " The special magic number is",
        "task": task,
        "answer": answers,
        "max_new_tokens": 128,
    }
    for number, task, answers in [
        (1, "niah_single_1", ["1"]),
        (2, "niah_single_1", ["2"]),
        (3, "qa_1", ["three", "3"]),
        (4, "vt", ["A", "B"]),
    ]
]
TASKS = ["niah_single_1", "qa_1", "vt"]


def as_jsonl(folder):
    (folder / "4096.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS), encoding="utf-8")


def as_parquet(folder):
    (folder / "4096").mkdir()
    pd.DataFrame(ROWS).to_parquet(folder / "4096" / "test-00000-of-00001.parquet")


def as_saved_by_datasets(folder):
    datasets.Dataset.from_list(ROWS).save_to_disk(folder / "4096")


def made(folder, **changes) -> KVPressRuler:
    return KVPressRuler(**{"tasks": TASKS, "data_dir": str(folder)} | changes)


@pytest.mark.parametrize("written", [as_jsonl, as_parquet, as_saved_by_datasets])
def test_samples_are_the_rows_in_every_form_of_the_data_set(tmp_path, written):
    written(tmp_path)
    samples = made(tmp_path).samples(None)
    assert [sample.id for sample in samples] == [
        "niah_single_1-4096-0", "niah_single_1-4096-1", "qa_1-4096-0", "vt-4096-0",
    ]  # fmt: skip
    for sample, row in zip(samples, ROWS, strict=True):
        assert sample.prompt == row["context"] + sample.question
        assert (sample.question, sample.prefix) == (row["question"], row["answer_prefix"])
        assert sample.answers == tuple(row["answer"]) and sample.max_new_tokens == 128
        assert sample.chat and sample.question_apart


def test_scores_are_rulers_all_or_part_by_task(tmp_path):
    as_jsonl(tmp_path)
    benchmark = made(tmp_path)
    _, _, qa, tracing = benchmark.samples(None)
    assert benchmark.score(qa, "It is Three.") == {"score": 1.0}
    assert benchmark.score(tracing, "a and c") == {"score": 0.5}


def test_control_characters_are_dropped_as_kvpress_does(tmp_path):
    """RULER's own code puts a line end for each, which parts an answer that kvpress joins."""
    as_jsonl(tmp_path)
    benchmark = made(tmp_path)
    (sample, *_) = benchmark.samples(None)
    split = replace(sample, answers=("123456",))
    assert benchmark.score(split, " It is 123\n456\x07 ") == {"score": 1.0}
    assert RULER["niah_single_1"].score("It is 123\n456", split.answers) == 0


def test_tasks_choose_among_the_rows(tmp_path):
    as_jsonl(tmp_path)
    assert {sample.meta["task"] for sample in made(tmp_path, tasks=["qa_1"]).samples(None)} == {"qa_1"}


def test_a_task_without_rows_is_one_line(tmp_path):
    as_jsonl(tmp_path)
    with pytest.raises(UserError, match=r"has no row of cwe; the tasks there: niah_single_1, qa_1, vt$"):
        made(tmp_path, tasks=["cwe"])


def test_a_row_without_its_question_is_named_with_its_file(tmp_path):
    rows = [ROWS[0], {key: value for key, value in ROWS[1].items() if key != "question"}]
    (tmp_path / "4096.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    with pytest.raises(UserError, match=r"4096\.jsonl, row 2: .*question"):
        made(tmp_path)


def test_a_folder_without_the_length_names_the_data_set(tmp_path):
    as_jsonl(tmp_path)
    with pytest.raises(UserError, match=r"has no file of 8192 .*data set simonjegou/ruler at main"):
        made(tmp_path, length=8192)


def test_needles_that_tasks_share_and_equal_questions_are_one_unit_of_intervals(tmp_path):
    """The generator draws the needles of a task again for others: counted as independent, intervals were too narrow."""
    needle = ROWS[0] | {"context": "Another haystack.\nThe special magic number is 1.\n", "task": "niah_single_2"}
    asked_again = ROWS[2] | {"context": "Other documents, with the answer among them."}
    rows = [*ROWS, needle, asked_again]
    (tmp_path / "4096.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    units = {sample.id: sample.unit for sample in made(tmp_path, tasks=[*TASKS, "niah_single_2"]).samples(None)}
    assert (
        units["niah_single_2-4096-0"] == units["niah_single_1-4096-0"] and units["qa_1-4096-1"] == units["qa_1-4096-0"]
    )
    assert len(set(units.values())) == len(rows) - 2
