"""BABILong's samples: official prompts around published rows, from every place where those may be."""

import json
from pathlib import Path

import datasets
import pandas as pd
import pytest

from kvbench.benchmarks import BABILong
from kvbench.benchmarks.babilong import prompts
from kvbench.benchmarks.babilong.stories import stories
from kvbench.benchmarks.python_texts import sha256
from kvbench.errors import UserError
from kvbench.utils.jsonl import read_rows
from tests.support.needs import official
from tests.support.paths import DATA
from tests.support.published_prompts import babilong_prompts

ROWS = DATA / "babilong"
OFFICIAL, needs_official = official("babilong/prompts.py")


@pytest.fixture
def prompts_file(tmp_path, monkeypatch) -> str:
    return str(babilong_prompts(tmp_path, ["qa1", "qa5", "qa8", "qa19"], monkeypatch))


@pytest.fixture
def made(prompts_file):
    def make(**changes) -> BABILong:
        config = {"tasks": ["qa1"], "lengths": ["0k"], "data_dir": str(ROWS), "prompts_file": prompts_file}
        return BABILong(**(config | changes))

    return make


def rows(task="qa1", length="0k") -> list[dict]:
    return read_rows(ROWS / length / f"{task}.jsonl", {})


def test_a_sample_is_a_row_in_its_tasks_prompt_with_the_question_last(made):
    first, *others = made(tasks=["qa1", "qa8"], lengths=["0k"]).samples(None)
    row = rows()[0]
    before = f"About qa1.\n\nA {{brace}}.\n\nBe brief.\n\nBook:\n{row['input']}"
    assert first.prompt == f"{before}\nEnd.\n\nAsked: {row['question'].strip()}"
    assert first.question == first.prompt.removeprefix(before)
    assert (first.answers, first.max_new_tokens, first.chat) == ((row["target"],), 20, True)
    assert [sample.id for sample in others] == ["qa1-0k-2", "qa1-0k-3", "qa8-0k-1", "qa8-0k-2", "qa8-0k-3"]
    assert others[-1].meta["task"] == "qa8 0k"


def test_a_story_at_several_lengths_and_of_several_rows_is_one_unit_of_intervals(made, tmp_path):
    for length in ("0k", "1k"):
        for task in ("qa1", "qa8"):
            file = tmp_path / task / f"{length}.json"
            file.parent.mkdir(exist_ok=True)
            file.write_text(json.dumps(rows(task)))
    samples = made(tasks=["qa1", "qa8"], lengths=["0k", "1k"], data_dir=str(tmp_path)).samples(None)
    units = ["qa1 1", "qa1 1", "qa1 3", "qa8 1", "qa8 1", "qa8 3"]  # 2: a later question about the story of 1
    assert [sample.unit for sample in samples] == units * 2


def in_a_book(facts: list[str], number: int) -> str:
    """A text with facts between sentences of which no other text has the same."""
    told = [f"{fact} Captain {number} of ship {place} was asleep." for place, fact in enumerate(facts)]
    return f"Chapter {number}\nNobody saw {number} whales. " + " ".join(told)


NAMES, PLACES = ("John", "Mary", "Daniel", "Sandra"), ("garden", "office", "kitchen", "hallway")
STORIES = [[f"{name} went to the {PLACES[(i + shift) % 4]}." for i, name in enumerate(NAMES)] for shift in range(4)]


def test_a_story_is_known_by_its_facts_inside_a_book():
    told = [STORIES[0][:2], STORIES[0], STORIES[1], STORIES[2][:3], STORIES[2], STORIES[3], STORIES[1][:2]]
    texts = {number: in_a_book(facts, number) for number, facts in enumerate(told, 1)}
    assert stories([texts]) == {1: 1, 2: 1, 3: 3, 4: 4, 5: 4, 6: 6, 7: 3}


def test_a_number_stands_for_one_story_at_every_length():
    short = {1: STORIES[0], 2: STORIES[1], 3: STORIES[1], 4: STORIES[2]}
    long = {1: STORIES[0], 2: STORIES[2], 3: STORIES[1], 4: STORIES[2], 5: STORIES[3]}
    texts = [{number: in_a_book(facts, number) for number, facts in rows.items()} for rows in (short, long)]
    assert stories(texts) == {1: 1, 2: 2, 3: 2, 4: 2, 5: 5}


def test_a_context_is_stripped_and_its_braces_stay(made, tmp_path):
    file = tmp_path / "qa1" / "0k.json"
    file.parent.mkdir()
    file.write_text(json.dumps([{"input": "\n A {question} {x}. \n", "question": "Where?", "target": "kitchen"}]))
    (sample,) = made(data_dir=str(tmp_path)).samples(None)
    assert sample.prompt.endswith("Book:\nA {question} {x}.\nEnd.\n\nAsked: Where?")


@needs_official
def test_every_official_prompt_is_proven_and_another_refused(tmp_path):
    found = prompts.load(prompts.SHA256, str(OFFICIAL))
    assert {task: sha256(p.before + "{context}" + p.after) for task, p in found.items()} == prompts.SHA256
    changed = tmp_path / "prompts.py"
    changed.write_text(OFFICIAL.read_text().replace("hidden in some", "in some"))
    with pytest.raises(UserError, match=r"the prompt of 'qa1' in .*prompts.py is not the official one"):
        prompts.load(["qa1"], str(changed))


def test_a_prompt_with_another_hash_is_refused(made, monkeypatch):
    monkeypatch.setitem(prompts.SHA256, "qa1", "0" * 64)
    with pytest.raises(UserError, match=r"'qa1' in .*prompts.py is not .* begins [0-9a-f]{16}, not 0{16}$"):
        made()


def test_prompts_come_from_an_installed_opencompass_or_the_network(made, prompts_file, tmp_path, monkeypatch):
    monkeypatch.setenv("KVBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)  # the file is fetched
    monkeypatch.setattr(prompts, "PUBLISHED", {(Path(prompts_file)).as_uri(): "0" * 64})
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"could not be fetched .* benchmark.prompts_file=FILE takes a local copy"):
        made(prompts_file=None)
    known = sha256(Path(prompts_file).read_text())
    monkeypatch.setattr(prompts, "PUBLISHED", {(Path(prompts_file)).as_uri(): known})
    assert made(prompts_file=None).samples(None) == made().samples(None)
    package = tmp_path / "opencompass" / "datasets" / "babilong"
    package.mkdir(parents=True)
    Path(prompts_file).rename(package / "prompts.py")
    spec = type("Spec", (), {"submodule_search_locations": [str(tmp_path / "opencompass")]})
    monkeypatch.setattr("importlib.util.find_spec", lambda name: spec)
    monkeypatch.setattr(prompts, "PUBLISHED", {})
    assert len(made(prompts_file=None).samples(None)) == 3


@pytest.mark.parametrize(
    "content, message", [(None, "is not a file"), ("(", "is not Python"), ("A = 1", "no prompt for 'qa1'")]
)
def test_a_prompts_file_without_them_is_named(made, tmp_path, content, message):
    file = tmp_path / "other.py"
    if content is not None:
        file.write_text(content)
    with pytest.raises(UserError, match=f"other.py.* {message}"):
        made(prompts_file=str(file))


# --- where rows are


LAYOUTS = ["data/qa1/0k.json", "0k/qa1-00000-of-00001.parquet", "qa1/0k-00000-of-00001.parquet", "0k/qa1"]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_rows_are_read_from_every_layout_of_the_data_set(made, tmp_path, layout):
    path = tmp_path / "copy" / layout
    path.parent.mkdir(parents=True)
    table = datasets.Dataset.from_list(rows())
    if path.suffix == ".json":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows()))
    elif path.suffix == ".parquet":
        table.to_parquet(path)
    else:
        table.save_to_disk(path)
    assert made(data_dir=str(tmp_path / "copy")).samples(None) == made().samples(None)


def test_a_missing_file_is_named_with_where_to_get_it(made):
    with pytest.raises(UserError) as told:
        made(tasks=["qa1", "qa5"], lengths=["0k", "64k"])
    assert "has no file of qa1 64k, qa5 64k (data/qa1/64k.json or " in str(told.value)
    assert str(told.value).endswith("it is in the data set RMT-team/babilong at main on the hub")
    with pytest.raises(UserError, match=r"benchmark.data_dir=./nowhere. is not a folder"):
        made(data_dir="/nowhere")


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"tasks": "qa21"}, "unknown task in benchmark.tasks 'qa21'"),
        ({"lengths": "3k"}, "unknown length in benchmark.lengths '3k'"),
        ({"lengths": []}, "benchmark.lengths=.. must be a name or a list of names"),
    ],
)
def test_a_wrong_value_is_one_line(made, changes, message):
    with pytest.raises(UserError, match=message):
        made(**changes)


# --- scores


def test_a_sample_is_scored_by_its_own_labels_and_question(made):
    benchmark = made(tasks=["qa1", "qa19"])
    samples = benchmark.samples(None)
    for sample in samples:
        assert benchmark.score(sample, f"It is {sample.answers[0]}.") == {"score": 1}
        assert benchmark.score(sample, "I do not know") == {"score": 0}


def test_the_breakdown_has_a_mean_of_the_leaderboards_tasks_for_each_length(made):
    records = [
        {"task": task, "setting": "full", "sample": task, "scores": {"score": value}}
        for task, value in {"qa1 0k": 1, "qa2 0k": 0, "qa6 0k": 1, "qa7 0k": 1, "qa1 4k": 0}.items()
    ]
    table = made().breakdown(pd.DataFrame(records)).set_index("task")["full"]
    assert list(table.index) == [
        *("qa1 0k", "qa2 0k", "qa6 0k", "qa7 0k", "qa1 4k"),
        *("qa1 to qa5 0k (2 of 5)", "qa6 to qa20 0k (2 of 15)"),
    ]
    assert table["qa1 to qa5 0k (2 of 5)"] == 50
