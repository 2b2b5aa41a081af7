"""SCBench's samples in its three modes: official templates around rows, what is shared, and what a turn follows."""

from pathlib import Path

import pandas as pd
import pytest

from kvbench.benchmarks.base import text_unit
from kvbench.benchmarks.scbench import prompts
from kvbench.benchmarks.scbench.tasks import GROUPS, TASKS
from kvbench.errors import UserError
from kvbench.metrics import repoqa
from tests.support import scbench as made
from tests.support.needs import official

OFFICIAL, needs_official = official("scbench/eval_utils.py")
WITHOUT_PARSERS = [name for name, task in TASKS.items() if "repoqa" not in task.limits]


class Words:
    """A tokenizer of words, one token each."""

    chat_template = None

    def __call__(self, text, **options):
        if isinstance(text, list):
            return {"input_ids": [part.split(" ") for part in text]}
        return {"input_ids": text.split(" ")}

    def decode(self, ids, **options):
        return " ".join(ids)


@pytest.fixture
def bench(tmp_path, monkeypatch):
    def make(**changes):
        changes = {"tasks": WITHOUT_PARSERS if changes.get("mode") != "shared" else ["kv"]} | changes
        return made.benchmark(tmp_path, monkeypatch, **changes)

    return make


def by_id(benchmark) -> dict:
    return {sample.id: sample for sample in benchmark.samples(Words())}


# --- tasks and templates


def test_the_tasks_are_the_official_twelve_in_four_groups():
    assert {group: len(names) for group, names in GROUPS.items()} == {
        "string_retrieval": 3,
        "semantic_retrieval": 4,
        "global_information": 3,
        "multi_tasking": 2,
    }
    assert TASKS["kv"].answer_room(5) == 750
    assert TASKS["summary_with_needles"].answer_room(5) == (800 + 15) * 5 // 2


@needs_official
@pytest.mark.parametrize("mode, chat", [("shared", True), ("turns_golden", True), ("turns_golden", False)])
def test_the_official_templates_are_proven(mode, chat):
    tasks = [task for task in TASKS.values() if mode != "shared" or task.name != "mf"]
    assert set(prompts.load(tasks, mode, chat, str(OFFICIAL))) == {task.name for task in tasks}


def test_a_template_that_is_not_the_official_one_is_refused(tmp_path, monkeypatch):
    path = Path(made.prompts_file(tmp_path, monkeypatch))
    path.write_text(path.read_text(encoding="utf-8").replace("Read this", "Read that"), encoding="utf-8")
    with pytest.raises(UserError, match="is not the official one"):
        prompts.load([TASKS["kv"]], "shared", True, str(path))
    path.write_text("multiturn_templates_scdq = {}", encoding="utf-8")
    with pytest.raises(UserError, match="no multiturn_templates_scdq of 'scbench_kv'"):
        prompts.load([TASKS["kv"]], "shared", True, str(path))


# --- shared contexts


def test_questions_about_a_shared_context_are_prompts_of_their_own(bench):
    shared = by_id(bench(mode="shared", tasks=[name for name in WITHOUT_PARSERS if name != "mf"]))
    row = made.rows()["kv"][1]
    for turn, question in enumerate(row["multi_turns"], 1):
        sample = shared[f"kv:1:{turn}"]
        assert sample.prompt == f"Read this.\n\n{row['context']}{question['input']}"
        assert sample.question == question["input"] and sample.answers == (question["answer"],)
        assert (sample.context_id, sample.meta["turn"], sample.max_new_tokens) == ("kv:1", turn, 150)
        assert sample.turns == () and not sample.own_answers and sample.chat
    choice = shared["choice_eng:0:1"]
    assert choice.question == "Asked: Who?\nA: Bob B: Anna C: Cy D: Di\nReply:"
    assert choice.answers == ("Anna", "B")
    assert shared["vt:0:1"].answers == ("A", "B")
    assert [shared[f"summary_with_needles:0:{turn}"].max_new_tokens for turn in (1, 2, 3)] == [800, 15, 800]
    assert shared["summary_with_needles:0:2"].meta["task"] == "summary_with_needles passkey"


def test_copies_of_a_book_in_tasks_and_rows_are_one_unit_of_intervals_and_random_contexts_are_not(bench):
    book = "".join(f"Anna lived in Oslo for {year} years. " for year in range(20))
    rows = {
        task: [row | {"context": f"{book}The mill is {number}."} for number, row in enumerate(made.rows()[task])]
        for task in ("qa_eng", "choice_eng", "vt")
    }
    samples = by_id(bench(mode="shared", tasks=[*rows], rows=rows)).values()
    units = {task: {sample.unit for sample in samples if sample.meta["task"] == task} for task in rows}
    assert units["qa_eng"] == units["choice_eng"] == {text_unit(f"{book}The mill is 0.")}
    assert len(units["vt"]) == 2 and len({sample.context_id for sample in samples}) == 6


def test_mf_cannot_be_shared(bench):
    with pytest.raises(UserError, match="has a question in it"):
        bench(mode="shared", tasks=["mf"])
    assert "mf" not in {task.name for task in bench(mode="shared", tasks=["global_information"]).chosen}


def test_the_answers_of_repoqa_need_parsers(bench, monkeypatch):
    monkeypatch.setattr(repoqa, "find_spec", lambda name: None if name == "tree_sitter_go" else True)
    with pytest.raises(UserError, match="tree-sitter-go is not installed: pip install"):
        bench(mode="shared", tasks=["repoqa"])
    monkeypatch.setattr(repoqa, "find_spec", lambda name: True)
    benchmark = bench(mode="shared", tasks=["repoqa", "repoqa_and_kv"])
    assert benchmark.functions["repoqa"] == {"colours": list(made.CODE.items())}  # of all rows, each once
    assert benchmark.functions["repoqa_and_kv"] == {"colours": [("blue", made.CODE["blue"])]}
    sample = by_id(benchmark)["repoqa:0:2"]
    assert sample.meta.items() >= {"lang": "python", "repo": "colours", "function": "red"}.items()
    assert sample.max_new_tokens == 1024


# --- conversations


def test_a_turn_follows_the_expected_answers_to_earlier_ones(bench):
    samples = by_id(bench(mode="turns_golden"))
    row = made.rows()["kv"][0]
    first, *later = [samples[f"kv:0:{turn}"] for turn in (1, 2, 3)]
    asks = [turn["input"] for turn in row["multi_turns"]]
    assert first.prompt == f"Read this.\n\n{row['context']}\n\n{asks[0]}" and first.question == f"\n\n{asks[0]}"
    assert all((sample.prompt, sample.question) == (first.prompt, first.question) for sample in later)
    assert [[(turn.answer, turn.question) for turn in sample.turns] for sample in (first, *later)] == [
        [],
        [("v0", asks[1])],
        [("v0", asks[1]), ("v37", asks[2])],
    ]
    assert samples["vt:0:2"].turns[0].answer == "['A', 'B']"
    mixed = samples["summary_with_needles:1:3"]
    assert [turn.max_new_tokens for turn in mixed.turns] == [800, 15]
    assert [turn.answer for turn in mixed.turns] == ["Grey sky.", "72"]


def test_every_turn_of_mf_names_its_own_statistic(bench):
    samples = by_id(bench(mode="turns_golden", tasks="mf"))
    assert samples["mf:0:1"].question == ""  # which question=hidden refuses
    assert samples["mf:0:1"].prompt == "What is the largest number?\n\n[4, 9, 7, 0]\n\nThe largest number is"
    assert [turn.question for turn in samples["mf:0:3"].turns] == [
        "What is the top number? The top number is",
        "What is the last number? The last number is",
    ]


def test_without_a_chat_template_later_messages_are_the_raw_templates(bench):
    chat, raw = (by_id(bench(mode="turns_golden", chat=chat))["choice_eng:0:2"] for chat in (True, False))
    assert raw.turns == chat.turns and not raw.chat


def test_own_answers_take_the_place_of_expected_ones(bench):
    samples = by_id(bench(mode="turns_own"))
    assert all(sample.own_answers for sample in samples.values())
    assert [turn.answer for turn in samples["kv:0:3"].turns] == ["", ""]
    assert [turn.max_new_tokens for turn in samples["summary_with_needles:0:3"].turns] == [800, 15]


def test_only_the_first_turns_are_taken(bench):
    assert {sample.meta["turn"] for sample in bench(mode="turns_own", max_turns=2).samples(Words())} == {1, 2}


def test_only_the_first_contexts_are_taken_and_all_functions_compared_with(bench, monkeypatch):
    monkeypatch.setattr(repoqa, "find_spec", lambda name: True)
    rows = made.rows()["repoqa"]
    rows[0]["multi_turns"] = rows[0]["multi_turns"][:1]
    benchmark = bench(mode="shared", tasks=["repoqa"], rows={"repoqa": rows}, num_contexts=1)
    assert list(by_id(benchmark)) == ["repoqa:0:1"]
    assert benchmark.functions["repoqa"] == {"colours": list(made.CODE.items())}


# --- lengths


@pytest.mark.parametrize("mode", ["shared", "turns_golden"])
def test_a_long_context_loses_its_middle_and_keeps_its_question(bench, mode):
    long = [{**row, "context": " ".join(map(str, range(9000)))} for row in made.rows()["kv"]]
    samples = by_id(bench(mode=mode, tasks=["kv"], rows={"kv": long}, max_length=4000))
    prompt, question = samples["kv:0:1"].prompt, samples["kv:0:1"].question
    assert prompt.startswith("Read this.\n\n0 1 2") and prompt.endswith(question)
    room = 4000 - 3 * 150 - 1000 * (mode == "shared")
    words = prompt.removesuffix(question) if mode == "shared" else prompt
    assert len(words.split(" ")) == 2 * (room // 2)
    assert " 8999" in prompt and " 4500 " not in prompt


def test_turns_that_need_more_than_the_official_room_get_it(bench):
    wordy = made.rows()["kv"]
    wordy[0]["multi_turns"][1]["input"] = "why " * 900
    wordy[0]["context"] = wordy[1]["context"] = "word " * 5000
    samples = by_id(bench(mode="turns_golden", tasks=["kv"], rows={"kv": wordy}, max_length=4000))
    first, second = (len(samples[f"kv:{row}:1"].prompt.split(" ")) for row in (0, 1))
    assert second == 4000 - 3 * 150
    assert first < 4000 - 2 * 900


def test_no_room_for_a_context_is_one_line(bench):
    with pytest.raises(UserError, match="leaves no room for a context of 'kv'"):
        bench(mode="shared", max_length=300).samples(Words())


# --- rows


def test_the_texts_of_a_list_are_the_answers(bench):
    rows = {task: made.rows()[task] for task in ("kv", "qa_eng", "qa_chn", "many_shot", "summary")}
    for several in rows.values():
        for turn in several[0]["multi_turns"]:
            turn["answer"] = ["山上", "river"]
    benchmark = bench(mode="turns_golden", tasks=list(rows), rows=rows)
    samples = by_id(benchmark)
    for task in rows:
        sample = samples[f"{task}:0:1"]
        assert sample.answers == ("山上", "river")
        assert benchmark.score(sample, "river") == {"official": 1, "mended": 1}
    rows["qa_chn"][0]["multi_turns"][0]["answer"] = ["在山上"]  # of a text, the official code compares characters
    benchmark = bench(mode="turns_golden", tasks=["qa_chn"], rows=rows)
    assert benchmark.score(by_id(benchmark)["qa_chn:0:1"], "在山上") == {"official": 1, "mended": 1}
    assert samples["kv:0:2"].turns[0].answer == "['山上', 'river']"  # as the official templates write it


@pytest.mark.parametrize(
    "task, change, message",
    [
        ("kv", {"multi_turns": []}, "row 1"),
        ("kv", {"context": ""}, "row 1: context must be"),
        ("kv", {"multi_turns": [{"input": "x"}]}, "row 1: turn 1: 'answer' is missing"),
        ("kv", {"multi_turns": [{"input": "x", "answer": ""}]}, "turn 1: answer is empty"),
        ("kv", {"multi_turns": [{"input": 3, "answer": "y"}]}, "input must be a text"),
        ("choice_eng", {"multi_turns": [{"input": "x", "answer": "a", "options": ["a", "b"]}]}, "four texts"),
        ("mf", {"multi_turns": [{"input": "Largest?", "answer": 3}]}, "'The … is'"),
        ("mf", {"multi_turns": [{"input": "The top is", "answer": "nine"}]}, "turn 1: answer is 'nine', not a number"),
        ("mf", {"multi_turns": [{"input": "The top is", "answer": [[1]]}]}, "turn 1: answer is '.1.', not a number"),
        ("summary_with_needles", {"multi_turns": [{"input": "x", "answer": "y", "task": "scbench_kv"}]}, "not one of"),
    ],
)
def test_a_wrong_row_is_one_line(bench, task, change, message):
    rows = made.rows()[task]
    rows[0] |= change
    with pytest.raises(UserError, match=message) as error:
        bench(mode="turns_golden", tasks=[task], rows={task: rows})
    assert f"scbench_{task}.jsonl" in str(error.value)


def test_functions_of_other_languages_are_refused(bench, monkeypatch):
    monkeypatch.setattr(repoqa, "find_spec", lambda name: True)
    rows = [{**row, "lang": "cobol"} for row in made.rows()["repoqa"]]
    with pytest.raises(UserError, match="lang 'cobol' is not one of python"):
        bench(mode="shared", tasks=["repoqa"], rows={"repoqa": rows})


# --- scores and tables


def test_scores_are_those_of_the_samples_kind(bench):
    benchmark = bench(mode="turns_golden")
    samples = by_id(benchmark)
    assert benchmark.score(samples["kv:0:1"], "it is v0.") == {"official": 1, "mended": 1}
    assert benchmark.score(samples["qa_chn:0:1"], "在山上") == {"official": 0.5, "mended": 1}
    assert benchmark.score(samples["summary_with_needles:0:2"], "71") == {"official": 1, "mended": 1}


def test_tables_have_a_row_per_task_or_per_turn(bench):
    def table(benchmark):
        records = [
            {**sample.meta, "sample": sample.id, "setting": "full", "scores": {"official": sample.meta["turn"] / 4}}
            for sample in benchmark.samples(Words())
        ]
        found = benchmark.breakdown(pd.DataFrame(records))
        return dict(zip(found["task"], found["full"], strict=True))

    shared = table(bench(mode="shared", tasks=["kv", "vt", "summary_with_needles"]))
    assert shared == {
        "kv": 50,
        "vt": 50,
        "string_retrieval (2 of 3)": 50,
        "summary_with_needles summary": 50,
        "summary_with_needles passkey": 50,
        "multi_tasking (2 of 4)": 50,
        "average of 4 tasks": 50,
    }
    turns = table(bench(mode="turns_golden", tasks=["kv"]))
    assert turns.items() >= {"kv turn 1": 25, "kv turn 2": 50, "kv turn 3": 75}.items()
