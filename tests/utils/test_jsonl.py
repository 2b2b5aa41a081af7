"""JSON-lines files: what is read, and that a fault is one line that names file and row."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvbench.errors import UserError
from kvbench.utils.jsonl import read_rows

FIELDS = {"_id": (str, None), "context": str, "answers": list[str], "length": (int, None)}
GOOD = {"_id": "a", "context": "Some text.", "answers": ["yes"], "length": 2}


def read(path, content: bytes | str, **more):
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return read_rows(path, FIELDS, filled=("context", "answers"), unique="_id", **more)


def line(**changes) -> str:
    row = {key: value for key, value in (GOOD | changes).items() if value is not ...}
    return json.dumps(row, ensure_ascii=False) + "\n"


@pytest.fixture
def file(tmp_path):
    return tmp_path / "qasper.jsonl"


def test_rows_come_back_as_they_are_with_fields_beyond_those_asked_for(file):
    rows = read(file, line() + line(_id="b", context="中文，\u2028\x85 one line", extra=[1]))
    assert rows == [GOOD, GOOD | {"_id": "b", "context": "中文，\u2028\x85 one line", "extra": [1]}]


@pytest.mark.parametrize(
    "content",
    [
        line().rstrip("\n"),
        "\n\n" + line() + "  \r\n",
        line().replace("\n", "\r\n"),
        b"\xef\xbb\xbf" + line().encode(),
    ],
    ids=["no last line end", "blank lines", "windows line ends", "byte order mark"],
)
def test_harmless_differences_are_read(file, content):
    assert read(file, content) == [GOOD]


def test_ids_that_are_null_may_repeat(file):
    assert len(read(file, line(_id=None) * 3)) == 3


@given(
    st.lists(
        st.fixed_dictionaries(
            {
                "context": st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(str.strip),
                "answers": st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=1),
                "length": st.none() | st.integers(),
                "_id": st.none(),
            }
        ),
        min_size=1,
        max_size=4,
    ),
    st.booleans(),
)
def test_whatever_json_writes_is_read_back(tmp_path_factory, rows, ascii_only):
    path = tmp_path_factory.mktemp("rows") / "any.jsonl"
    text = "".join(json.dumps(row, ensure_ascii=ascii_only) + "\n" for row in rows)
    assert read(path, text) == rows


FAULTS = {
    "missing field": (line(answers=...), "field 'answers' is missing"),
    "wrong type": (line(context=7), "field 'context' is a whole number, not a text"),
    "null where none may be": (line(answers=None), "field 'answers' is null, not a list in which each item is a text"),
    "a text for a list": (line(answers="yes"), "field 'answers' is a text, not a list in which each item is a text"),
    "a number in a list": (
        line(answers=["a", 1]),
        "field 'answers' is a list with a text and a whole number, not a list",
    ),
    "true for a number": (line(length=True), "field 'length' is true or false, not a whole number or null"),
    "a fraction": (line(length=1.5), "field 'length' is a number, not a whole number or null"),
    "empty context": (line(context=" \n"), "field 'context' is empty"),
    "no answers": (line(answers=[]), "field 'answers' is empty"),
    "cut short": (line()[:-12], "broken JSON: "),
    "two objects": (line().rstrip() + line(), "broken JSON: Extra data at character"),
    "not JSON": ("context: Some text.\n", "broken JSON: Expecting value at character 1"),
    "a list": ('["Some text."]\n', "not a JSON object but a list with a text"),
    "a number": ("3\n", "not a JSON object but a whole number"),
    "NaN": (line().replace("2", "NaN"), "NaN is not a number in JSON"),
    "a number that becomes infinite": (line().replace("2", "2e999"), "'2e999' is larger than any number"),
    "a field twice": (line().replace('"length"', '"context"'), "field 'context' occurs twice"),
    "half a character": (line(extra="?").replace("?", "\\ud83d"), "unpaired surrogate"),
    "a number without end": (line().replace("2", "2" * 5000), "4300 digits"),
    "nested too deeply": ("[" * 200_000 + "\n", "nested too deeply"),
    "latin-1": (line(context="caf\u00e9").encode("latin-1"), "not UTF-8 (byte 29 of the row)"),
    "utf-16": (line().encode("utf-16"), "not UTF-8 (byte 1 of the row)"),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("before", [0, 2])
def test_a_fault_is_one_line_with_file_and_row(file, fault, before):
    content, message = FAULTS[fault]
    before = 0 if fault == "utf-16" else before  # a file has one encoding
    good = "".join(line(_id=f"good {i}") for i in range(before)).encode()
    blank = b"\n" if before else b""
    content = content.encode() if isinstance(content, str) else content
    with pytest.raises(UserError) as caught:
        read(file, good + blank + content)
    assert str(caught.value).startswith(f"{file}, row {before + len(blank) + 1}: ")
    assert message in str(caught.value)


def test_an_id_that_repeats_is_told_with_both_rows(file):
    with pytest.raises(UserError, match=r"qasper.jsonl, row 3: _id 'b' is also in row 2"):
        read(file, line() + line(_id="b") + line(_id="b", context="Other."))


@pytest.mark.parametrize("content", ["", "\n \n", b"\xef\xbb\xbf"])
def test_a_file_without_rows_is_a_fault(file, content):
    with pytest.raises(UserError, match=r"qasper\.jsonl holds no rows"):
        read(file, content)


def test_what_cannot_be_opened_is_named(tmp_path):
    with pytest.raises(UserError, match=r"none\.jsonl cannot be read: No such file"):
        read_rows(tmp_path / "none.jsonl", FIELDS)
    with pytest.raises(UserError, match="cannot be read: Is a directory"):
        read_rows(tmp_path, FIELDS)


@pytest.mark.heavy
def test_a_line_of_50_megabytes_is_read_and_never_repeated_in_an_error(file):
    long = "All work and no play makes Jack a dull boy. " * 1_200_000
    (row,) = read(file, line(context=long))
    assert row["context"] == long
    for broken in (line(context=long)[:-20], line(context=long, answers=7), line(context=long) * 2):
        with pytest.raises(UserError) as caught:
            read(file, broken)
        assert "work" not in str(caught.value)
        assert len(str(caught.value)) < 300 + len(str(file))


@pytest.mark.parametrize(
    "name, data, told",
    [
        ("a.csv", b"context,question\none,two\n", "a table with commas: python -c "),
        ("a.json", b'[{"text": "one"}]', "one JSON array: python -c "),
        ("a.json", b'[\n  {"text":\n "one"}\n]\n', "one JSON array: python -c "),
        ("a.jsonl", b'[\n  {"text":\n "one"}\n]\n', "one JSON array"),
        ("a.jsonl", b'{\n  "text": "one"\n}\n', "one JSON object over several lines"),
        ("a.jsonl", b"PAR1\x00", "a Parquet file"),
    ],
)
def test_a_file_of_another_form_is_named_and_converted(tmp_path, name, data, told):
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(UserError) as error:
        read_rows(path, {"text": str})
    said = str(error.value)
    assert said.startswith(f"{path} must have one JSON object per line, and is {told}") and "\n" not in said
    if name == "a.json":
        command = said.partition('python -c "')[2].rstrip('"')
        exec(command)
        assert read_rows(tmp_path / "a.jsonl", {"text": str}) == [{"text": "one"}]


def test_a_broken_row_of_lines_stays_a_broken_row(tmp_path):
    for data, told in ((b'{"text": "one"}\n[{}]\n', "row 2: not a JSON object"), (b'{"text"', "row 1: broken JSON")):
        (tmp_path / "a.jsonl").write_bytes(data)
        with pytest.raises(UserError, match=told):
            read_rows(tmp_path / "a.jsonl", {"text": str})
