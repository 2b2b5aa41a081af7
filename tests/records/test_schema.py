"""One typed schema per kind of record: what is built and read through it, and what is set aside."""

import json
import runpy

import pytest

from kvbench.errors import UserError
from kvbench.records import gather, load
from kvbench.records.manifest import read_manifests
from kvbench.records.schema import KINDS, build, check_manifest, kind_of
from kvbench.records.store import RECORDS, Store, to_line
from tests.support import records as made_up
from tests.support.command import kvbench
from tests.support.paths import ROOT

pytestmark = pytest.mark.filterwarnings("ignore:no manifest of run")


def written(folder, *lines: bytes):
    folder.mkdir(exist_ok=True)
    (folder / RECORDS).write_bytes(b"".join(lines))
    return folder


def plain(record: dict) -> bytes:
    """A line as version 0.1.0 wrote it: without a checksum."""
    return json.dumps(record).encode() + b"\n"


# Kinds of version 0.1.0, whose records do not name it.
WITHOUT_KIND = ("method", "probe", "speed")


@pytest.mark.parametrize("kind", KINDS)
def test_a_record_is_built_in_the_order_of_its_fields_with_its_kind_after_the_key(kind):
    fields = made_up.record(kind)
    del fields["kind"]
    made = build(kind, fields | {"task": "qasper", "depths": [10, 20.5], "group": None})
    assert list(made) == ["key", "kind", *list(fields)[1:], "task", "depths", "group"]
    assert made["kind"] == kind == kind_of(made)
    if kind in WITHOUT_KIND:
        assert kind == kind_of(fields)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"scores": {"f1": float("nan")}}, "field 'scores.f1': input should be a finite number"),
        ({"scores": {"f1": float("inf")}}, "field 'scores.f1': input should be a finite number"),
        ({"prompt_tokens": 1.5}, "field 'prompt_tokens': input should be a valid integer"),
        ({"parameters": "{"}, "field 'parameters': not a JSON object"),
        ({"memory": "disk"}, "field 'memory': input should be 'shared' or 'stream'"),
        ({"length": 10**30}, "field 'length': integer out of range"),
    ],
)
def test_a_value_that_the_schema_does_not_allow_makes_no_record(changes, message):
    with pytest.raises(UserError) as error:
        build("method", made_up.record() | changes)
    assert str(error.value) == f"sample 's0' under 'snapkv 0.2' cannot become a record: {message}"


SHAPES = {
    "a number": b"5\n",
    "a list": b"[1, 2]\n",
    "no fields": b'{"key": "k"}\n',
    "an unknown kind": plain(made_up.record() | {"kind": "dream"}),
    "a kind that is no text": plain(made_up.record() | {"kind": ["method"]}),
    "parameters that are no JSON": plain(made_up.record() | {"parameters": "{"}),
    "parameters that are no object": plain(made_up.record() | {"parameters": "[1]"}),
    "an infinite score": plain(made_up.record()).replace(b'"score": 1.0', b'"score": 1e999'),
    "an integer of 30 digits": plain(made_up.record() | {"length": 10**29}),
    "an integer of 5,000 digits": plain(made_up.record()).replace(
        b'"prompt_tokens": 100', b'"prompt_tokens": ' + b"9" * 5000
    ),
    "a text for a number": plain(made_up.record() | {"r_bytes": "0.2"}),
    "deep nesting": b"[" * 100_000 + b"\n",
}


def nested(times: int) -> object:
    value: object = 1
    for _ in range(times):
        value = [value]
    return value


def test_lists_inside_each_other_are_read_up_to_a_depth_that_no_reader_fails_at():
    assert build("method", made_up.record() | {"column": nested(254)})["column"] == nested(254)
    for times in (255, 10**4):
        with pytest.raises(UserError, match="field 'column': more than 254 lists and objects inside each other"):
            build("method", made_up.record() | {"column": nested(times)})


@pytest.mark.parametrize("line", SHAPES.values(), ids=SHAPES)
def test_json_of_another_shape_is_reported_in_one_line_and_set_aside(line, tmp_path, capsys):
    whole = made_up.record(sample="whole")
    folder = written(tmp_path / "run", line, to_line(whole))
    assert kvbench("records", folder, "--parquet", tmp_path / "all.parquet") == 1
    shown = capsys.readouterr()
    assert f"torn     ! 1 line of {folder / RECORDS} torn or damaged" in shown.out and not shown.err
    assert gather(folder)[0]["sample"].tolist() == ["whole"]
    with Store(folder) as store:
        assert (store.set_aside, store.done) == (1, {whole["key"]})
    assert (folder / RECORDS).read_bytes() == to_line(whole)


def test_records_without_a_kind_load_and_contradict_no_record_with_one(tmp_path):
    for kind in WITHOUT_KIND:
        new = made_up.record(kind, sample=kind)
        old = {name: value for name, value in new.items() if name != "kind"}
        written(tmp_path / kind, plain(old))
        written(tmp_path / f"{kind}-again", to_line(new))
    records, findings = gather(tmp_path)
    assert dict(zip(records["sample"], records["kind"], strict=True)) == {kind: kind for kind in WITHOUT_KIND}
    assert {finding.kind for finding in findings} == {"duplicate", "manifest"}


def test_an_edited_score_is_found_and_its_record_made_again(tmp_path, capsys):
    first, second = made_up.record(sample="a"), made_up.record(sample="b")
    edited = to_line(first).replace(b'"score": 1.0', b'"score": 0.9')
    folder = written(tmp_path / "run", edited, to_line(second))
    assert kvbench("records", folder) == 1
    message = f"edited   ! 1 record of {folder / RECORDS} changed since written: 1 record missing until a run makes"
    assert message in capsys.readouterr().out
    with Store(folder) as store:
        assert store.done == {second["key"]}
        store.append(first)
    assert sorted(load(folder)["sample"]) == ["a", "b"]
    assert (folder / "records.torn").read_bytes() == edited


def test_another_layout_of_the_same_values_is_no_edit(tmp_path):
    line = json.dumps(json.loads(to_line(made_up.record(prediction="é"))), separators=(",", ":")).encode() + b"\n"
    assert load(written(tmp_path / "run", line))["prediction"].tolist() == ["é"]


@pytest.mark.parametrize(
    "text",
    ["5", "[]", "{}", '{"run": 7}', '{"run": "r", "config": {}}', '{"run": "r", "config": {"model": 3}}', "[" * 10**5],
)
def test_a_manifest_of_another_shape_is_damaged_and_named(text, tmp_path):
    (tmp_path / "manifests").mkdir()
    path = tmp_path / "manifests" / "r.json"
    path.write_text(text)
    manifests, damaged = read_manifests(tmp_path)
    assert manifests == {} and [*damaged] == [path]


def test_a_hidden_file_beside_the_manifests_is_none(tmp_path):
    """macOS writes ._r.json beside r.json: `kvbench verify` called a folder that was copied there wrong."""
    (tmp_path / "manifests").mkdir()
    (tmp_path / "manifests" / "._r.json").write_bytes(b"\x00\x05\x16\x07\x00\x02\x00\x00Mac OS X        ")
    assert read_manifests(tmp_path) == ({}, {})


def test_a_manifest_of_an_earlier_version_has_its_request():
    assert check_manifest({"run": "r", "asked": ["ab"], "wanted": 3}) == {"run": "r", "requested": ["ab"], "wanted": 3}


def test_the_documentation_is_made_from_the_schema():
    make = runpy.run_path(str(ROOT / "scripts" / "maintenance" / "make_records_doc.py"))
    assert (ROOT / "docs" / "records.md").read_text(encoding="utf-8") == make["document"](), (
        "run python -m scripts.maintenance.make_records_doc"
    )
