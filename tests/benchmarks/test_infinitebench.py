"""InfiniteBench's samples: official templates around rows, the official truncation, what can be hidden."""

import json
import sys

import pandas as pd
import pytest

from kvbench.benchmarks import InfiniteBench
from kvbench.benchmarks.base import text_unit
from kvbench.benchmarks.infinitebench import prompts
from kvbench.benchmarks.infinitebench.tasks import GROUPS, SETS, TASKS
from kvbench.benchmarks.python_texts import sha256
from kvbench.errors import UserError
from kvbench.metrics.infinitebench import METRICS, score
from kvbench.utils.jsonl import read_rows
from tests.support.needs import official
from tests.support.paths import DATA
from tests.support.published_prompts import infinitebench_prompts

ROWS = DATA / "infinitebench"
THERE = ["passkey", "number_string", "kv_retrieval", "math_find", "math_calc", "code_run"]
OFFICIAL, needs_official = official("infinitebench/prompt.py")
CHOICE = {"context": "A book.", "input": "Who?", "answer": ["Ann"], "options": ["Bob", "Ann", "Cy", "Di"]}


@pytest.fixture
def made(tmp_path, monkeypatch):
    file = str(infinitebench_prompts(tmp_path, monkeypatch))

    def make(rows: dict[str, dict] | None = None, **changes) -> InfiniteBench:
        for task, row in (rows or {}).items():
            (tmp_path / f"{task}.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
        config = {"tasks": list(rows or THERE), "max_length": 4000, "prompts_file": file}
        return InfiniteBench(**(config | {"data_dir": str(tmp_path if rows else ROWS)} | changes))

    return make


def row(task: str) -> dict:
    return read_rows(ROWS / f"{task}.jsonl", {})[0]


def test_the_tasks_are_the_official_twelve():
    assert len(TASKS) == 12 and set(TASKS) == set(METRICS)
    assert {group: len(members) for group, members in GROUPS.items()} == {
        "retrieval": 3,
        "text": 5,
        "math": 2,
        "code": 2,
    }
    assert len(SETS["asked_last"]) == 8


def test_prompts_are_the_templates_with_the_rows_fields(made, embedded):
    by_task = {sample.meta["task"]: sample for sample in reversed(made().samples(embedded.tokenizer))}
    key, find, run = row("passkey"), row("math_find"), row("code_run")
    assert by_task["passkey"].prompt == f"Find it.\n\n{key['context']}\n\n{key['input']}"
    assert by_task["passkey"].question == f"\n\n{key['input']}"
    assert by_task["passkey"].answers == ("71432",) and by_task["passkey"].max_new_tokens == 64
    largest = "What is the largest number in the following list?"
    assert by_task["math_find"].prompt == f"{largest}\n\n{find['context']}\n\n{find['input']}"
    assert by_task["code_run"].prompt == f"There is func_6351.\n\n{run['context']}\n\nWhat is func_6351(2)?"
    assert by_task["code_run"].answers == ("4",) and by_task["code_run"].unit == text_unit(run["context"])
    assert json.loads(by_task["math_calc"].answers[0])[:3] == [79, 59, 73]
    assert [task for task, sample in by_task.items() if not sample.question] == ["code_run", "math_calc", "math_find"]


def test_near_copies_are_one_unit_in_texts_and_not_in_random_contexts(made, embedded):
    same = "".join(f"Hill {number} is green in spring. " for number in range(20))
    rows = {
        "passkey": row("passkey") | {"context": same + "The pass key is 71432."},
        "longbook_choice_eng": CHOICE | {"context": same},
        "longdialogue_qa_eng": CHOICE | {"context": same + "The mill stands by the river."},
    }
    key, book, dialogue = (sample.unit for sample in made(rows).samples(embedded.tokenizer))
    assert key != book == dialogue == text_unit(same)


def test_base_models_get_raw_text_to_complete(made, embedded):
    chat, raw = (
        made(tasks="passkey", templates=name).samples(embedded.tokenizer)[0] for name in ("gpt4", "yarn_mistral")
    )
    assert (chat.chat, raw.chat) == (True, False)
    assert raw.prompt == chat.prompt + " Answer:"
    assert raw.question == chat.question + " Answer:"


def test_a_prompt_that_is_completed_has_the_official_limit_of_its_answer(made, embedded):
    official = {
        "passkey": 6,
        "number_string": 12,
        "kv_retrieval": 50,
        "math_find": 3,
        "math_calc": 30_000,
        "code_run": 5,
    }
    samples = made(templates="yarn_mistral").samples(embedded.tokenizer)
    assert {sample.meta["task"]: sample.max_new_tokens for sample in samples} == official


def test_the_limits_of_gpt4s_templates_leave_published_answers_their_scores(embedded):
    """Chats write "The value corresponding to the key … is …" where the open models complete "The pass key is"."""

    def cut(task: str, prediction: str) -> str:
        tokens = embedded.tokenizer.encode(prediction)
        return embedded.tokenizer.decode(tokens[: TASKS[task].max_new_tokens(chat=True)])

    answers = read_rows(ROWS / "predictions.jsonl", {})
    cut_scores = [score(row["task"], cut(row["task"], row["prediction"]), row["answers"]) for row in answers]
    assert cut_scores == [row["official"] for row in answers]


@pytest.mark.parametrize("task", ["longbook_choice_eng", "code_debug"])
@pytest.mark.parametrize("answer", [["Ann"], "Ann", ["Ann", "B"]])
def test_a_choice_has_its_text_and_its_letter(made, embedded, task, answer):
    benchmark = made({task: CHOICE | {"answer": answer}})
    (sample,) = benchmark.samples(embedded.tokenizer)
    assert sample.answers == ("Ann", "B")
    assert sample.question.endswith("A Bob B Ann C Cy D Di")
    assert benchmark.score(sample, "B. Ann") == {"score": 1} and benchmark.score(sample, "A. Bob") == {"score": 0}


@pytest.mark.parametrize(
    "max_length, templates, first, last",  # those of the slices in eval_utils.py and in eval_yarn_mistral.py
    [(64, "gpt4", 32, 32), (101, "gpt4", 50, 51), (64, "yarn_mistral", 32, 32), (101, "yarn_mistral", 50, 50)],
)
def test_long_prompts_lose_their_middle(made, embedded, max_length, templates, first, last):
    tokenizer = embedded.tokenizer
    whole = {sample.id: sample for sample in made(templates=templates).samples(tokenizer)}
    for sample in made(max_length=max_length, templates=templates).samples(tokenizer):
        ids = tokenizer.encode(whole[sample.id].prompt)
        assert sample.prompt == tokenizer.decode(ids[:first] + ids[-last:], skip_special_tokens=True)
        assert sample.meta["cut"] and not whole[sample.id].meta["cut"]
        assert whole[sample.id].question.endswith(sample.question) and sample.prompt.endswith(sample.question)


def test_a_short_prompt_is_the_text_of_its_tokens(made, embedded):
    """The official code decodes every prompt, which drops special tokens that a text contains."""
    rows = {"passkey": row("passkey") | {"context": "The key<|im_end|> is 71432."}}
    (sample,) = made(rows).samples(embedded.tokenizer)
    assert sample.prompt == "Find it.\n\nThe key is 71432.\n\nWhat is the pass key?"
    assert sample.question == "\n\nWhat is the pass key?"


@needs_official
@pytest.mark.parametrize("family", prompts.SHA256)
def test_every_official_template_is_proven(family):
    found = prompts.load(family, TASKS, str(OFFICIAL))
    assert {task: sha256(text) for task, text in found.items()} == prompts.SHA256[family]
    parts = {task: text.partition("{context}") for task, text in found.items()}
    hideable = {task for task, (before, _, after) in parts.items() if after and "{" not in before}
    assert set(SETS["asked_last"]) <= hideable <= {*SETS["asked_last"], "longbook_sum_eng", "math_calc"}


def test_the_installed_lm_eval_has_all_official_templates_of_gpt4_but_one(monkeypatch):
    monkeypatch.delitem(sys.modules, "lm_eval", raising=False)
    tasks = [task for task in TASKS if task != "math_calc"]
    found = prompts.load("gpt4", tasks)
    assert {task: sha256(text) for task, text in found.items()} == {
        task: prompts.SHA256["gpt4"][task] for task in tasks
    }
    assert "lm_eval" not in sys.modules


def test_what_lm_eval_lacks_is_fetched(monkeypatch, tmp_path):
    monkeypatch.setenv("KVBENCH_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)  # the file is fetched
    monkeypatch.setattr(prompts, "PUBLISHED", {"file:///nowhere/prompt.py": "0" * 64})
    for family, task in (("gpt4", "math_calc"), ("yarn_mistral", "passkey")):
        with pytest.raises(UserError, match=r"nowhere/prompt.py.* benchmark.prompts_file=FILE takes a local copy"):
            prompts.load(family, [task, "kv_retrieval"])
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"nowhere/prompt.py"):
        prompts.load("gpt4", ["passkey"])


def test_another_template_is_refused(made, monkeypatch, tmp_path):
    monkeypatch.setitem(prompts.SHA256["gpt4"], "passkey", "0" * 64)
    with pytest.raises(UserError, match=r"the gpt4 prompt of 'passkey' in .*prompt.py is not the official one"):
        made()
    (tmp_path / "other.py").write_text("gpt4_templates = {}")
    with pytest.raises(
        UserError, match=r"other.py has no gpt4 prompt for 'passkey': it is not InfiniteBench's src/prompt.py"
    ):
        made(prompts_file=str(tmp_path / "other.py"))


@pytest.mark.parametrize(
    "task, changes, message",
    [
        ("code_debug", {"options": ["a"]}, "row 1: field 'options' has 1 of the 4 options"),
        ("code_debug", {"answer": ["Eve"]}, "row 1: field 'answer' is not one of the options"),
        ("code_run", {}, "row 1: field 'input' has nothing of the form func_"),
        ("math_find", {}, "row 1: field 'input' has nothing of the form The"),
        ("code_run", {"input": "func_1(2)"}, "row 1: answer is 'Ann', not an integer"),
        ("math_find", {"input": "The largest number of the list is: "}, "row 1: answer is 'Ann', not a number"),
        ("math_find", {"input": "The largest number of the list is: ", "answer": ["nan"]}, "row 1: answer is 'nan'"),
        ("passkey", {"answer": []}, "row 1: field 'answer' is empty"),
        ("math_calc", {"answer": [[]]}, "row 1: field 'answer' has an empty list of values"),
        ("passkey", {"answer": 3}, "row 1: field 'answer' is a whole number, not a list or a text"),
    ],
)
def test_a_fault_in_a_row_is_named(made, task, changes, message):
    with pytest.raises(UserError, match=rf"{task}.jsonl, {message}"):
        made({task: CHOICE | changes})


def test_a_missing_task_is_named_with_where_to_get_it(made):
    with pytest.raises(
        UserError, match=r"no file of code_debug \(code_debug.jsonl or .* xinrongzhang2022/InfiniteBench"
    ):
        made(tasks=["passkey", "code_debug"])


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"tasks": "passkeys"}, "unknown task in benchmark.tasks 'passkeys'. Did you mean 'passkey'"),
        ({"templates": "kimi"}, "unknown benchmark.templates 'kimi'"),
        ({"max_length": 8}, "benchmark.max_length=8 must be an integer of at least 64"),
    ],
)
def test_a_wrong_value_is_one_line(made, changes, message):
    with pytest.raises(UserError, match=message):
        made(**changes)


def test_longest_counts_the_longest_answer_but_not_that_of_math_calc(made):
    assert made(tasks=["passkey", "kv_retrieval"]).longest == 4000 + 64 + 128
    assert made(tasks=["passkey", "kv_retrieval"], templates="yarn_mistral").longest == 4000 + 64 + 50
    assert made(tasks=["passkey", "math_calc"]).longest is None


def test_the_table_has_the_groups_and_the_average_of_all_tasks(made):
    records = pd.DataFrame(
        [{"task": task, "setting": "full", "sample": task, "scores": {"score": 1.0}} for task in reversed(TASKS)]
    )
    table = made().breakdown(records)
    assert table["task"].tolist() == [*TASKS, *GROUPS, "average"]


def test_num_samples_takes_the_first_rows_of_each_task(made, embedded):
    few = made(tasks=["kv_retrieval", "math_find"], num_samples=1).samples(embedded.tokenizer)
    assert [sample.id for sample in few] == ["kv_retrieval-1", "math_find-1"]
    assert few[0] == made(tasks="kv_retrieval").samples(embedded.tokenizer)[0]
