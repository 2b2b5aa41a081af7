"""LongBench as kvpress evaluates it: rows of its data set, what is hidden, and its scores."""

import json

import pandas as pd
import pytest

from kvbench.benchmarks.base import text_unit
from kvbench.benchmarks.longbench_kvpress import KVPressLongBench
from kvbench.errors import UserError
from kvbench.evaluation.prompts import tokenise
from kvbench.metrics.longbench import score as official

# Rows of the form that kvpress's create_huggingface_dataset.py writes, with texts of our own.
ROWS = {
    "hotpotqa": {
        "context": "Read.\nThe mill is by the river.\nNow answer.\n\n",
        "question": "Question: Where is the mill?\n",
        "answer_prefix": "Answer:",
        "answers": ["by the river"],
        "all_classes": None,
        "max_new_tokens": 52,
    },
    "trec": {
        "context": "Name the type.\n\nQuestion: How high?\nType: Height\n",
        "question": "Question: Who came?\n",
        "answer_prefix": "Type:",
        "answers": ["Person"],
        "all_classes": ["Person", "Height"],
        "max_new_tokens": 84,
    },
    "lcc": {
        "context": "Complete the code. \ndef add(a, b):\n",
        "question": "",
        "answer_prefix": "Next line of code:\n",
        "answers": ["    return a + b"],
        "all_classes": None,
        "max_new_tokens": 84,
    },
}


def as_jsonl(folder, task, row):
    (folder / f"{task}.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")


def as_parquet(folder, task, row):
    (folder / task).mkdir()
    pd.DataFrame([row]).to_parquet(folder / task / "test-00000-of-00001.parquet")


@pytest.fixture
def made(tmp_path):
    def make(write=as_jsonl, **changes) -> KVPressLongBench:
        for task, row in ROWS.items():
            write(tmp_path, task, row | {"task": task, "length": 100, **changes.get(task, {})})
        return KVPressLongBench(tasks=list(ROWS), data_dir=str(tmp_path))

    return make


@pytest.mark.parametrize("write", [as_jsonl, as_parquet])
def test_samples_are_the_rows(made, write):
    samples = made(write).samples(None)
    assert [sample.id for sample in samples] == ["hotpotqa:1", "trec:1", "lcc:1"]
    for sample, row in zip(samples, ROWS.values(), strict=True):
        assert (sample.prompt, sample.question) == (row["context"] + row["question"], row["question"])
        assert (sample.prefix, sample.answers) == (row["answer_prefix"], tuple(row["answers"]))
        assert (sample.max_new_tokens, sample.unit) == (row["max_new_tokens"], text_unit(row["context"]))
        assert sample.chat and sample.question_apart and not sample.stop_at_newline
    assert samples[1].meta["all_classes"] == ["Person", "Height"] and "all_classes" not in samples[0].meta


def test_a_copy_of_a_context_with_other_blanks_is_of_its_unit(made):
    benchmark = made()
    (row,) = benchmark.rows["hotpotqa"]
    benchmark.rows["hotpotqa"].append(row | {"context": row["context"].replace(" ", "  ")})
    assert [sample.unit for sample in benchmark.samples(None)][:2] == 2 * [text_unit(row["context"])]


def test_the_question_alone_is_hidden_with_the_end_of_the_template(made, embedded):
    for sample, row in zip(made().samples(None), ROWS.values(), strict=True):
        prompt = tokenise(embedded, sample, "hidden")
        assert embedded.decode(prompt.context.tolist()).endswith(row["context"])
        behind = embedded.decode(prompt.question.tolist())
        assert behind.startswith(row["question"]) and behind.endswith("assistant\n" + row["answer_prefix"])


def test_an_answer_is_scored_without_its_leading_blanks(made):
    """kvpress strips them before LongBench's functions: a line of code loses its indentation, samsum an empty line."""
    benchmark = made()
    _, trec, code = benchmark.samples(None)
    assert benchmark.score(code, "    return a + b") == {"score": 0.86}  # that of kvpress's calculate_metrics
    assert official("lcc", "    return a + b", code.answers, None) == 1
    assert benchmark.score(trec, " \n Person\nHeight") == {"score": 1}
    assert official("trec", " \n Person\nHeight", trec.answers, ["Person", "Height"]) == 0


def test_faults_in_rows_are_one_line(made):
    with pytest.raises(UserError, match=r"trec.jsonl, row 1: field 'all_classes' is null"):
        made(trec={"all_classes": None})
    with pytest.raises(UserError, match=r"trec.jsonl has a row of 'lsht', not of trec"):
        made(trec={"task": "lsht"})


def test_a_task_without_a_file_names_the_data_set(tmp_path):
    with pytest.raises(UserError, match=r"no file of hotpotqa .*data set Xnhyacinth/LongBench at main"):
        KVPressLongBench(tasks=["hotpotqa"], data_dir=str(tmp_path))
