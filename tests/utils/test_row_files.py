"""Rows of published data files in each of their forms."""

import json

import datasets
import pytest

from kvbench.errors import UserError
from kvbench.utils.row_files import read_file

ROWS = [{"id": "a", "text": "one"}, {"id": "b", "text": "zwei ü"}]
FIELDS = {"id": str, "text": str}


@pytest.fixture
def written(tmp_path):
    def write(ending: str, rows: list[dict]):
        path = tmp_path / f"rows{ending}"
        if ending == ".json":
            path.write_text(json.dumps(rows), encoding="utf-8-sig")
        elif ending == ".jsonl":
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        elif ending == ".parquet":
            datasets.Dataset.from_list(rows).to_parquet(path)
        else:
            datasets.Dataset.from_list(rows).save_to_disk(tmp_path / "saved")
            path = tmp_path / "saved" / "data-00000-of-00001.arrow"
        return path

    return write


@pytest.mark.parametrize("ending", [".json", ".jsonl", ".parquet", ".arrow"])
def test_every_form_gives_the_same_rows_under_the_same_checks(written, ending):
    assert read_file(written(ending, ROWS), FIELDS, filled=("text",), unique="id") == ROWS
    with pytest.raises(UserError, match="row 3: id 'a' is also in row 1"):
        read_file(written(ending, [*ROWS, ROWS[0]]), FIELDS, unique="id")
    with pytest.raises(UserError, match="row 2: field 'text' is empty"):
        read_file(written(ending, [ROWS[0], {"id": "b", "text": " "}]), FIELDS, filled=("text",))
    with pytest.raises(UserError, match="row 1: field 'answer' is missing"):
        read_file(written(ending, ROWS), FIELDS | {"answer": str})


def test_a_json_file_may_have_a_row_a_line(tmp_path):
    path = tmp_path / "rows.json"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    assert read_file(path, FIELDS) == ROWS


@pytest.mark.parametrize(
    "name, content, message",
    [
        ("a.json", b"[1, 2]", "a JSON array of something other than objects"),
        ("a.json", b"[{]", "not a JSON array in UTF-8"),
        ("a.json", b"[]", "holds no rows"),
        ("a.json", None, "cannot be read"),
        ("a.parquet", b"no table", "is not a Parquet file"),
        ("a.arrow", b"no table", "is not an Arrow file"),
    ],
)
def test_a_broken_file_is_named(tmp_path, name, content, message):
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError, match=f"a\\..* {message}"):
        read_file(path, FIELDS)
