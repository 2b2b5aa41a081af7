"""Prompts from a JSON-lines file."""

import json
import subprocess
import sys

import pandas as pd
import pytest

from kvbench.benchmarks import OwnPrompts
from kvbench.benchmarks.base import data_hash, text_unit
from kvbench.errors import UserError
from kvbench.evaluation.check_samples import check_samples
from kvbench.evaluation.prompts import together, tokenise

ROW = {"context": "Ben lives in Rome.", "question": "Where does Ben live?", "answers": "Rome"}
CHAT = {
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "Hi"},
        {"role": "user", "content": "Who are you?"},
    ]
}

ROLES = ("system", "user", "assistant", "user")


@pytest.fixture
def written(tmp_path):
    """Rows → the benchmark of a file with them."""

    def write(*rows, **options):
        path = tmp_path / "prompts.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        return OwnPrompts(path=str(path), **options)

    return write


def test_a_row_becomes_a_prompt_that_ends_with_its_question(written):
    (sample,) = written(ROW, metric="contains").samples(None)
    assert sample.prompt == "Ben lives in Rome.\n\nWhere does Ben live?"
    assert (sample.id, sample.question, sample.answers) == ("1", ROW["question"], ("Rome",))
    assert sample.meta == {"task": "prompts", "metric": "contains"}


def test_a_row_says_what_differs_from_the_benchmark(written):
    row = ROW | {"metric": "exact", "max_new_tokens": 7, "task": "towns", "id": "ben", "meta": {"source": "a letter"}}
    benchmark = written(row, ROW)
    first, second = benchmark.samples(None)
    assert (first.id, first.max_new_tokens, second.max_new_tokens) == ("ben", 7, 64)
    assert first.meta == {"task": "towns", "metric": "exact", "source": "a letter"}
    assert benchmark.score(first, "in Rome") == {"score": 0}
    assert benchmark.score(second, "in Rome") == {"score": pytest.approx(2 / 3)}


def test_questions_of_one_row_share_its_context_and_its_settings(written):
    questions = [{"question": "Where?", "answers": ["Rome"]}, {"question": "Who?", "answers": "Ben", "metric": "exact"}]
    row = {"context": "Ben lives in Rome.", "questions": questions, "max_new_tokens": 5, "meta": {"page": 3}}
    samples = written(row, metric="contains").samples(None)
    assert [sample.id for sample in samples] == ["1.1", "1.2"]
    assert [sample.meta["metric"] for sample in samples] == ["contains", "exact"]
    assert {sample.max_new_tokens for sample in samples} == {5}
    assert {sample.meta["page"] for sample in samples} == {3}
    assert together(samples, "hidden") == [samples]


@pytest.mark.parametrize(("number", "ids"), [(1, ["ben"]), (2, ["ben.1", "ben.2"])])
def test_the_questions_of_a_row_with_an_id_are_named_after_it(written, number, ids):
    """A single one was named after the row's number instead."""
    row = {"context": "Ben lives in Rome.", "questions": [{"question": "Where?"}] * number, "id": "ben"}
    assert [sample.id for sample in written(row).samples(None)] == ids


def test_samples_about_one_context_are_one_unit_of_intervals_in_whichever_rows_they_are(written):
    asked = {"context": "Ben lives in Rome.", "questions": [{"question": "Where?"}, {"question": "Who?"}]}
    samples = written(asked, ROW, ROW | {"context": "Ann lives in Oslo."}, CHAT).samples(None)
    ben, ann = text_unit("Ben lives in Rome."), text_unit("Ann lives in Oslo.")
    assert [sample.unit for sample in samples] == [ben, ben, ben, ann, ""]


def test_chats_about_one_text_are_one_unit_and_a_short_message_that_others_share_is_no_text(written):
    def chat(*contents):
        return {"messages": [{"role": role, "content": text} for role, text in zip(ROLES, contents, strict=False)]}

    letter, other = "Ben lives in Rome. " * 5, "Ann lives in Oslo. " * 5
    asked = [chat("Be brief.", letter, "Read.", question) for question in ("Where?", "Who?")]
    whole = [chat("Be brief.", f"{text} Where?") for text in (letter, other)]
    in_system = [chat(other, question) for question in ("Where?", "Who?")]
    samples = written(*asked, *whole, *in_system).samples(None)
    ben, ann = text_unit(letter), text_unit(other)
    assert [sample.unit for sample in samples] == [ben, ben, "", "", ann, ann]


def test_a_chat_is_rendered_message_by_message(written, embedded):
    (sample,) = written(CHAT).samples(embedded.tokenizer)
    prompt = tokenise(embedded, sample, "visible")
    expected = embedded.tokenizer.apply_chat_template(CHAT["messages"], add_generation_prompt=True, return_dict=False)
    assert prompt.context.tolist() == list(expected)


def test_the_last_message_of_a_chat_is_the_question_that_can_be_hidden(written, embedded):
    (sample,) = written(CHAT).samples(embedded.tokenizer)
    whole, split = tokenise(embedded, sample, "visible"), tokenise(embedded, sample, "hidden")
    assert split.context.tolist() + split.question.tolist() == whole.context.tolist()
    assert embedded.decode(split.question.tolist()).startswith("Who are you?")


def test_a_row_without_answers_has_no_score_unless_a_function_gives_one(written):
    row = {"context": "abc"}
    benchmark = written(row)
    assert benchmark.metrics == ()
    assert benchmark.score(benchmark.samples(None)[0], "anything") == {}
    assert written(row, metric="tests.support.metric.two").metrics == ("score",)


def test_only_a_file_of_several_scored_tasks_has_a_table_of_its_tasks(written):
    scores = {"towns": 1.0, "names": 0.5}
    records = pd.DataFrame(
        [
            {"task": task, "setting": "full", "sample": task, "scores": {"score": score}}
            for task, score in scores.items()
        ]
    )
    table = written(ROW).breakdown(records)
    assert (table["task"].tolist()[:2], table["full"].tolist()[:2]) == ([*scores], [100.0, 50.0])
    assert written(ROW).breakdown(records[:1]) is None
    unscored = records.assign(scores=[{}, {}])
    assert written({"context": "a"}).breakdown(unscored) is None
    assert written(ROW).breakdown(unscored) is None  # a limit left out the rows with answers


def test_the_hash_of_the_samples_follows_the_function_but_not_the_place_of_the_file(written, tmp_path):
    named = written(ROW, metric="tests.support.metric.shortest").samples(None)
    assert data_hash(named) != data_hash(written(ROW).samples(None))
    (tmp_path / "other").mkdir()
    moved = tmp_path / "other" / "prompts.jsonl"
    moved.write_text((tmp_path / "prompts.jsonl").read_text())
    assert data_hash(OwnPrompts(path=str(moved)).samples(None)) == data_hash(written(ROW).samples(None))


@pytest.mark.parametrize(
    "row, message",
    [
        ({"context": "a", "anwsers": "b"}, "unknown key in row 'anwsers'. Did you mean 'answers'?"),
        (
            {"context": "a", "answers": [""]},
            "row.answers=[''] must be a text or a list of texts, none of them empty or null",
        ),
        ({"context": "a", "max_new_tokens": 0}, "row.max_new_tokens=0 must be an integer of at least 1 or null"),
        ({"context": " "}, "row.context is empty"),
        ({"question": "a"}, "a row has either a context or messages"),
        ({"context": "a", "questions": []}, "questions must be a list of objects with question and answers"),
        ({"context": "a", "questions": [{"q": "b"}]}, "item 1 of questions: unknown key in question 'q'"),
        ({"context": "a", "metric": "f9"}, "unknown metric 'f9'. Did you mean 'f1'?"),
        (
            {"context": "a", "metric": "shutil.rmtree"},
            "unknown metric 'shutil.rmtree'. Allowed: choice, contains, exact, f1, rouge_l; a function is given by "
            "benchmark.metric=module.function, for all rows that name no metric",
        ),
        ({"context": "a", "metric": ""}, "unknown metric ''. Allowed: choice"),
        (
            {"context": "a", "questions": [{"question": "b", "metric": "tests.support.metric.two"}]},
            "unknown metric 'tests.support.metric.two'.",
        ),
        ({"messages": []}, "the last message must have the role user: it is the question"),
        ({"messages": [{"role": "boss", "content": ""}]}, "item 1 of messages: unknown message.role 'boss'"),
        ({"messages": CHAT["messages"], "question": "b"}, "the last message is the question"),
    ],
)
def test_a_mistake_is_one_line_with_file_row_and_field(written, tmp_path, row, message):
    with pytest.raises(UserError) as error:
        written(ROW, row)
    assert str(error.value).startswith(f"{tmp_path / 'prompts.jsonl'}, row 2: {message}")


def test_an_id_occurs_once(written, tmp_path):
    with pytest.raises(UserError, match="row 3: the id 'a' is also in row 1"):
        written(ROW | {"id": "a"}, ROW, ROW | {"id": "a"})
    path = tmp_path / "blank.jsonl"
    path.write_text('\n{"context": "a", "id": "2"}\n\n{"context": "b"}\n')  # its second row has the id 2, too
    with pytest.raises(UserError, match=r"blank\.jsonl, row 4: the id '2' is also in row 2"):
        OwnPrompts(path=str(path))


def test_a_span_that_is_not_in_its_prompt_is_named_with_file_and_row(written, tmp_path, embedded):
    benchmark = written(ROW, ROW | {"spans": {"lost": "no such text"}})
    with pytest.raises(UserError) as error:
        check_samples(embedded, benchmark, benchmark.samples(None), "visible")
    assert str(error.value).startswith(f"{tmp_path / 'prompts.jsonl'}, row 2: sample '2': the text of span 'lost'")


@pytest.mark.parametrize(
    "path, message", [(None, "set benchmark.path=FILE to a JSON-lines file"), (".", "is a folder, not a file")]
)
def test_the_file_must_be_named(path, message):
    with pytest.raises(UserError, match=message):
        OwnPrompts(path=path)


def test_a_prompt_that_is_too_long_is_found_before_the_first_is_run(written, embedded):
    benchmark = written(ROW, {"context": "word " * 9000})
    with pytest.raises(
        UserError, match=r"prompts\.jsonl, row 2: sample '2' has 9\d\d\d tokens; smollm2-135m takes at most"
    ):
        check_samples(embedded, benchmark, benchmark.samples(None), "visible")


@pytest.mark.parametrize("name", ["r_bytes", "device", "folder"])  # the last two are of the run, which load adds
def test_columns_of_a_row_cannot_replace_those_of_the_record_or_its_run(name, written, embedded):
    benchmark = written(ROW | {"meta": {name: "phone"}})
    with pytest.raises(UserError, match=f"row 1: sample '1': meta cannot have '{name}', a column of every record"):
        check_samples(embedded, benchmark, benchmark.samples(None), "visible")


@pytest.mark.parametrize("name", ["task", "metric"])
def test_a_field_in_meta_is_refused(name, written):
    """It was left out, and the records had the file's name as their task."""
    with pytest.raises(UserError, match=rf"row 1: {name} is a field of the row, not of its meta"):
        written(ROW | {"meta": {name: "exact"}})
    with pytest.raises(UserError, match=rf"row 1: {name} is a field of the row, not of its meta"):
        written({"context": "a", "questions": [{"question": "b", "answers": ["c"], "meta": {name: "exact"}}]})


def test_a_row_that_names_a_module_does_not_import_it(written, tmp_path, monkeypatch):
    (tmp_path / "runs_when_imported.py").write_text("open('imported', 'w').close()\ndef score(*_): return 1\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UserError, match=r"unknown metric 'runs_when_imported\.score'"):
        written(ROW | {"metric": "runs_when_imported.score"})
    assert not (tmp_path / "imported").exists()


def test_a_row_without_answers_cannot_make_itself_one_with_a_score(written):
    (sample,) = (benchmark := written({"context": "a", "meta": {"metric_sha256": "0"}})).samples(None)
    assert benchmark.score(sample, "anything") == {}


def test_a_property_that_tables_group_by_is_one_value(written, embedded):
    benchmark = written(ROW | {"meta": {"length": [1]}})
    with pytest.raises(UserError, match=r"sample '1': length=\[1\] of its meta must be one text or number"):
        check_samples(embedded, benchmark, benchmark.samples(None), "visible")


def test_null_is_a_field_that_is_left_out(written):
    """A table's empty cells and typed rows are nulls; question, meta and spans were refused for it."""
    left_out = {"question": None, "answers": None, "meta": None, "spans": None, "id": None, "messages": None}
    (sample,) = written({"context": "Ben lives in Rome."} | left_out).samples(None)
    (plain,) = written({"context": "Ben lives in Rome."}).samples(None)
    assert sample == plain


TABLE = 'context,question,answers,id,task,max_new_tokens\nThe code is 007.,Which?,007,1,,8\n"A, b",,None,2,x,\n'
ARRAY = json.dumps([{"context": "The code is 007.", "question": "Which?", "answers": "007", "id": "1"}])


@pytest.mark.parametrize(
    "name, text, answers, limits",
    [
        ("rows.csv", TABLE, [("007",), ("None",)], [8, 64]),
        ("rows.tsv", TABLE.replace('"A, b"', "A b").replace(",", "\t"), [("007",), ("None",)], [8, 64]),
        ("rows.json", ARRAY, [("007",)], [64]),
    ],
    ids=["csv", "tsv", "json"],
)
@pytest.mark.heavy
def test_the_command_that_converts_a_table_keeps_its_texts(name, text, answers, limits, tmp_path):
    """pandas made 7 of "007", which was refused, and no answer of "None"; an empty question was refused, too."""
    (tmp_path / name).write_text(text)
    with pytest.raises(UserError) as error:
        OwnPrompts(path=str(tmp_path / name))
    _, command = str(error.value).split(": ", 1)
    subprocess.run(command.replace("python ", f"{sys.executable} ", 1), shell=True, check=True)
    samples = OwnPrompts(path=str(tmp_path / "rows.jsonl")).samples(None)
    assert [sample.answers for sample in samples] == answers
    assert [sample.max_new_tokens for sample in samples] == limits
