"""`python -m kvbench score`: published scores from published predictions, LongBench-E, records, mistakes."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

from kvbench.evaluation import rescore as predictions
from kvbench.metrics.longbench import score as official
from kvbench.records.store import to_line
from kvbench.report.tables import rescored
from tests.support.command import kvbench
from tests.support.needs import needs
from tests.support.paths import ROOT

PUBLISHED = (ROOT / "tests") / "data/longbench_pred"
SHARED = os.environ.get("KVBENCH_DATA")
ROW = {"pred": "Paris", "answers": ["Paris"], "all_classes": None, "length": 100}


pytestmark = pytest.mark.usefixtures("wide")


def write(folder: Path, **files: list[dict] | dict | str) -> Path:
    """A folder with a .jsonl file for every list of rows and a .json file for everything else."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        if isinstance(content, list):
            text = "".join(json.dumps(row) + "\n" for row in content)
            (folder / f"{name}.jsonl").write_text(text)
        else:
            (folder / f"{name}.json").write_text(content if isinstance(content, str) else json.dumps(content))
    return folder


def rows(name: str) -> list[dict]:
    return [json.loads(line) for line in (PUBLISHED / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]


def command(capsys, *arguments: object) -> str:
    """What the command prints; nothing may stand on stderr."""
    assert kvbench("score", *arguments) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    return printed.out


def cells(printed: str) -> dict[str, list[str]]:
    """The rows of the table by task, for names without blanks."""
    return {words[0]: words[1:] for line in printed.splitlines() if len(words := line.split()) > 2}


def mistake(capsys, *arguments: object) -> str:
    assert kvbench("score", *arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("kvbench: ") and printed.err.count("\n") == 1
    return printed.err.strip()


def test_published_predictions_have_their_published_scores(capsys, tmp_path):
    out = tmp_path / "scores.json"
    printed = command(capsys, PUBLISHED, "--out", out)
    assert cells(printed)["2wikimqa"] == ["200", "30.26", "30.26", "0.00"]
    assert cells(printed)["samsum"] == ["200", "41.88", "41.88", "0.00"]
    assert "all 2 scores equal result.json" in printed
    assert "≠" not in printed
    assert json.loads(out.read_text()) == json.loads((PUBLISHED / "result.json").read_text())


@pytest.mark.slow
@needs("data", "" if SHARED else "KVBENCH_DATA names no folder with predictions of all English tasks")
def test_all_published_predictions_have_their_published_scores():
    folder = Path(SHARED) / "longbench_pred/LongLoRA"
    files, extended = predictions.find(folder, False)
    known = predictions.published(folder)
    assert len(files) == 16 and not extended
    result = predictions.official_form(predictions.from_files(files, extended))
    assert result == {task: known[task] for task in files}


def test_scores_that_differ_from_the_published_ones_are_marked(capsys, tmp_path):
    result = {"2wikimqa": 100, "hotpotqa": 60, "vcsum": 3}
    write(tmp_path, **{"2wikimqa": [ROW, ROW], "hotpotqa": [ROW, ROW | {"pred": "Rome"}]}, result=result)
    printed = command(capsys, tmp_path)
    assert cells(printed)["2wikimqa"] == ["2", "100.00", "100.00", "0.00"]
    assert cells(printed)["hotpotqa"] == ["≠", "2", "50.00", "60.00", "-10.00"]
    assert "multi_doc_qa (2 of 4) ≠" in printed
    assert "1 of 2 scores differ from result.json" in printed
    assert "in result.json and not here: vcsum" in printed


def test_tasks_that_were_not_published_stand_in_the_table_all_the_same(capsys, tmp_path):
    write(tmp_path, hotpotqa=[ROW], qasper=[ROW], result={"qasper": 100})
    printed = command(capsys, tmp_path)
    assert cells(printed)["hotpotqa"] == ["1", "100.00", "–", "–"]
    assert "all 1 scores equal result.json" in printed
    assert "here and not in result.json: hotpotqa" in printed
    write(tmp_path, result={"vcsum": 1})
    assert "result.json has none of these scores, but: vcsum" in command(capsys, tmp_path)


def test_without_a_result_the_table_has_no_published_column(capsys, tmp_path):
    printed = command(capsys, write(tmp_path, hotpotqa=[ROW]))
    assert "published" not in printed and "result.json" not in printed


def test_averages_of_16_and_of_21_tasks_are_named_when_all_are_there(capsys, tmp_path):
    from kvbench.benchmarks.longbench.tasks import ENGLISH, TASKS

    special = {"passage_retrieval_en": "Paragraph 1", "passage_retrieval_zh": "段落1", "passage_count": "1"}

    def row(task: str) -> dict:
        answer = special.get(task, "word")
        return {"pred": answer, "answers": [answer], "all_classes": [answer]}

    write(tmp_path, **{task: [row(task)] for task in ENGLISH})
    printed = command(capsys, tmp_path)
    assert "average 16 English" in printed and "average 21" not in printed
    write(tmp_path, **{task: [row(task)] for task in TASKS})
    assert "average 21" in command(capsys, tmp_path)


def test_longbench_e_has_a_mean_for_each_range_of_length(capsys, tmp_path):
    """Ranges end at 4000 and 8000, and each is its own mean, as eval.py --e has it."""
    lengths = [0, 3999, 4000, 7999, 8000, 50000]
    found = [ROW | {"length": length, "pred": "Paris" if length != 3999 else "Rome"} for length in lengths]
    write(tmp_path / "plain", hotpotqa=found)
    out = tmp_path / "scores.json"
    printed = command(capsys, tmp_path / "plain", "--e", "--out", out)
    assert json.loads(out.read_text()) == {"hotpotqa": {"0-4k": 50, "4-8k": 100, "8k+": 100}}
    assert cells(printed)["hotpotqa"] == ["8k+", "2", "100.00"]  # the last of the three rows
    assert "average of" not in printed


@pytest.mark.parametrize("folder", ["pred_e/model", "model"])
def test_longbench_e_is_known_by_its_files_or_its_folder(capsys, tmp_path, folder):
    name = "2wikimqa" if "pred_e" in folder else "2wikimqa_e"
    found = rows("2wikimqa")
    lengths = np.array([row["length"] for row in found])
    values = np.array([official("2wikimqa", row["pred"], row["answers"], None) for row in found])
    ranges = {"0-4k": lengths < 4000, "4-8k": (lengths >= 4000) & (lengths < 8000), "8k+": lengths >= 8000}
    expected = {part: round(float(100 * values[inside].mean()), 2) for part, inside in ranges.items()}
    write(tmp_path / folder, **{name: found}, result={"2wikimqa": expected | {"8k+": 1.5}})
    out = tmp_path / "scores.json"
    printed = command(capsys, tmp_path / folder, "--out", out)
    assert json.loads(out.read_text()) == {"2wikimqa": expected}
    assert "1 of 3 scores differ from result.json" in printed
    assert "2wikimqa 8k+ ≠" in printed


@pytest.mark.parametrize(("bucket", "expected"), [(None, 12.35), ("0-4k", 12.34)])
def test_scores_are_rounded_as_eval_py_does_by_python_or_for_ranges_by_numpy(bucket, expected):
    one = predictions.Scored("score", "qasper", bucket, "qasper:1", {"score": 0.12345})
    assert list(predictions.official_means([one]).values()) == [expected]
    assert list(rescored.table([one])["score"]) == [expected]


def test_a_range_without_samples_is_null(capsys, tmp_path):
    out = tmp_path / "scores.json"
    write(tmp_path, qasper_e=[ROW], result='{"qasper": {"0-4k": 100.0, "4-8k": NaN, "8k+": NaN}}')
    printed = command(capsys, tmp_path, "--out", out)
    assert json.loads(out.read_text()) == {"qasper": {"0-4k": 100, "4-8k": None, "8k+": None}}
    assert "all 1 scores equal result.json" in printed


def test_files_may_have_more_in_their_names_and_other_files_are_passed_over(tmp_path):
    names = ["repobench-p-chat", "passage_retrieval_en.part", "multifieldqa_en", "notes", "qasper2"]
    row = ROW | {"answers": ["Paragraph 1"]}
    write(tmp_path, **{name: [row] for name in names})
    files, extended = predictions.find(tmp_path, False)
    assert {task: path.stem for task, path in files.items()} == {
        "multifieldqa_en": "multifieldqa_en",
        "passage_retrieval_en": "passage_retrieval_en.part",
        "repobench-p": "repobench-p-chat",
    }
    assert not extended
    write(tmp_path / "e", **{"multifieldqa_en_e-chat": [row]})
    files, extended = predictions.find(tmp_path / "e", False)
    assert list(files) == ["multifieldqa_en"] and extended


def records(*changes: dict) -> list[dict]:
    base = {
        "benchmark": "longbench",
        "setting": "full",
        "task": "hotpotqa",
        "sample": "hotpotqa:1",
        "prediction": "Paris",
        "answers": ["Paris"],
        "scores": {"score": 1.0},
    }
    return [base | {"key": f"{number}"} | change for number, change in enumerate(changes)]


def test_records_of_a_run_are_scored_again(capsys, tmp_path):
    few = {"setting": "snapkv 0.2"}
    classified = {"task": "trec", "sample": "trec:1", "prediction": "City\nx", "answers": ["City"]}
    classified |= {"all_classes": ["City", "x"]}
    summary = {"task": "qmsum", "sample": "qmsum:1", "prediction": "The cat.", "answers": ["the cat"]}
    summary |= {"scores": {"score": official("qmsum", "The cat.", ["the cat"], None), "rouge_score_l": 1.0}}
    wrong = {"prediction": "Rome", "scores": {"score": 0.0}}
    made = records({}, classified, summary, few | wrong, few | classified, few | summary)
    write(tmp_path, records=[*made, made[0] | wrong])  # of copies the first counts, as in all tables
    out = tmp_path / "scores.json"
    printed = command(capsys, tmp_path, "--out", out)
    assert cells(printed)["hotpotqa"] == ["1", "100.00", "0.00"]
    assert "all 6 records score as stored" in printed
    result = json.loads(out.read_text())
    assert result["full"] == {"hotpotqa": 100, "trec": 100, "qmsum": 50}
    assert result["snapkv 0.2"] == {"hotpotqa": 0, "trec": 100, "qmsum": 50}


def test_settings_of_one_name_with_other_parameters_are_columns_of_their_own(capsys, tmp_path):
    narrow, wide = ({"setting": "snapkv 0.2", "parameters": json.dumps({"window": size})} for size in (8, 32))
    wrong = {"prediction": "Rome", "scores": {"score": 0.0}}
    out = tmp_path / "scores.json"
    printed = command(capsys, write(tmp_path, records=records(narrow, wide | wrong)), "--out", out)
    assert cells(printed)["hotpotqa"] == ["1", "100.00", "0.00"]
    assert [*json.loads(out.read_text())] == ["snapkv 0.2 (window=8)", "snapkv 0.2 (window=32)"]


def test_records_that_do_not_score_as_stored_are_named(capsys, tmp_path):
    away = [{"sample": f"hotpotqa:{i}", "scores": {"score": 0.25}} for i in range(7)]
    printed = command(capsys, write(tmp_path, records=records({}, *away)))
    assert "scores that differ from the stored ones: 7" in printed
    assert "hotpotqa:0 under full: score is 0.25 in the record and 1.0 now" in printed
    assert "hotpotqa:4" in printed and "hotpotqa:5" not in printed
    assert "and 2 more" in printed


def test_an_edited_record_is_refused_and_whole_ones_of_every_shard_are_scored(capsys, tmp_path):
    mine, edited = (to_line(record) for record in records({}, {"sample": "hotpotqa:2"}))
    (tmp_path / "records.0-of-2.jsonl").write_bytes(mine)
    (tmp_path / "records.1-of-2.jsonl").write_bytes(edited)
    assert "all 2 records score as stored" in command(capsys, tmp_path)
    (tmp_path / "records.1-of-2.jsonl").write_bytes(mine + edited.replace(b"Paris", b"Pariz"))
    assert "records.1-of-2.jsonl, row 2: changed after it was written" in mistake(capsys, tmp_path)


def test_records_of_longbench_e_are_parted_by_their_ranges(capsys, tmp_path):
    extended = {"benchmark": "longbench_e", "bucket": "4-8k"}
    printed = command(capsys, write(tmp_path, records=records(extended)))
    assert cells(printed)["hotpotqa"] == ["4-8k", "1", "100.00"]


MISTAKES = {
    "missing": ({}, [], "there is no folder '"),
    "empty": ({"other": [ROW]}, [], "has no LongBench predictions (and no records.jsonl): a file is TASK.jsonl"),
    "two": ({"qasper": [ROW], "qasper-b": [ROW]}, [], "qasper-b.jsonl and qasper.jsonl in"),
    "mixed": ({"qasper": [ROW], "hotpotqa_e": [ROW]}, [], "predictions of LongBench and of LongBench-E (TASK_e)"),
    "not in e": ({"musique": [ROW]}, ["--e"], "musique.jsonl: LongBench-E has no task 'musique', only qasper, "),
    "no pred": ({"qasper": [ROW, {"answers": []}]}, [], "qasper.jsonl, row 2: field 'pred' is missing"),
    "pred": ({"qasper": [ROW, ROW | {"pred": None}]}, [], "qasper.jsonl, row 2: field 'pred' is null, not a text"),
    "answers": ({"qasper": [ROW | {"answers": "Paris"}]}, [], "qasper.jsonl, row 1: field 'answers' is a text"),
    "no rows": ({"qasper": []}, [], "qasper.jsonl holds no rows"),
    "classes": ({"trec": [ROW]}, [], "trec.jsonl, row 1: field 'all_classes' is null"),
    "length": ({"qasper": [ROW | {"length": None}]}, ["--e"], "qasper.jsonl, row 1: field 'length' is null"),
    "paragraph": ({"passage_retrieval_en": [ROW]}, [], "passage_retrieval_en.jsonl, row 1: answer 'Paris' of a"),
    "result": ({"qasper": [ROW], "result": "{"}, [], "result.json cannot be read as JSON in UTF-8"),
    "list": ({"qasper": [ROW], "result": "[]"}, [], "result.json is not an object with a score for each task"),
    "text": ({"qasper": [ROW], "result": {"qasper": "1"}}, [], "result.json: the score of 'qasper' is '1', not a"),
    "niah": ({"records": [{"benchmark": "niah"}]}, [], "records.jsonl, row 1: a record of 'niah': only LongBench's"),
    "kvpress": ({"records": [{"benchmark": "longbench_kvpress"}]}, [], "predictions (longbench, longbench_e) can be"),
    "record": ({"records": [{"benchmark": "longbench"}]}, [], "records.jsonl, row 1: field 'setting' is missing"),
    "e records": ({"records": records({})}, ["--e"], "--e is for TASK.jsonl files; "),
    "no records": ({"records": []}, [], "records.jsonl holds no rows"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_line_with_exit_code_2(capsys, tmp_path, name):
    files, options, message = MISTAKES[name]
    folder = write(tmp_path / "predictions", **files) if files else tmp_path / "predictions"
    assert message in mistake(capsys, folder, *options)


def test_a_broken_line_is_told_before_anything_is_scored(capsys, tmp_path):
    write(tmp_path, hotpotqa=[ROW], qasper=[ROW])
    with (tmp_path / "qasper.jsonl").open("a") as file:
        file.write('{"pred": "Par')
    assert "qasper.jsonl, row 2: broken JSON" in mistake(capsys, tmp_path)


def test_scores_that_cannot_be_written_are_a_mistake(capsys, tmp_path):
    folder = write(tmp_path / "predictions", qasper=[ROW])
    assert "there is no folder" in mistake(capsys, folder, "--out", tmp_path / "nowhere" / "scores.json")
    assert f"cannot write --out {tmp_path}: Is a directory" in mistake(capsys, folder, "--out", tmp_path)
    for name, said in (("qasper", "holds predictions that are scored"), ("records", "would be read as records")):
        assert said in mistake(capsys, folder, "--out", folder / f"{name}.jsonl")


def test_help_tells_the_form_of_the_files(capsys):
    said = command(capsys, "--help")
    for told in ("TASK.jsonl", "all_classes", "--e", "--out FILE", "result.json", "records.jsonl"):
        assert told in said
