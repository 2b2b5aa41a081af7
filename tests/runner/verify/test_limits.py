"""What a folder may cost: refused in one line before memory or time is spent, counted and not timed."""

import hashlib
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kvbench.benchmarks import Sample
from kvbench.benchmarks.base import at_most
from kvbench.benchmarks.niah.ranges import numbers
from kvbench.errors import UserError
from kvbench.records import bounded_parquet, parquet_records
from kvbench.records.bounded_parquet import read_table
from kvbench.records.manifest import LARGEST, read_manifests
from kvbench.records.parquet_records import read_records, write_records
from kvbench.records.store import PACK, RECORDS, to_line
from kvbench.runner.verify import limits
from kvbench.runner.verify.checks import verify
from kvbench.runner.verify.counted_tokenizer import CountedTokenizer
from kvbench.runner.verify.verdict import Verdict
from kvbench.utils.hashing import digest
from tests.support.command import kvbench
from tests.support.records import record


def pack(folder, table, about=None):
    folder.mkdir(exist_ok=True)
    told = {"version": 1, "layouts": [["key"]], "json": []} if about is None else about
    pq.write_table(table.replace_schema_metadata({b"kvbench": json.dumps(told)}), folder / PACK, compression="zstd")
    return folder / PACK


def test_rows_that_take_no_bytes_are_refused_by_the_metadata_alone(tmp_path, monkeypatch):
    path = pack(tmp_path / "pack", pa.table({"_fields": pa.nulls(10**7, pa.int32())}))
    monkeypatch.setattr(pq.ParquetFile, "iter_batches", lambda *_: pytest.fail("a page was read"))
    with pytest.raises(UserError, match="10,000,000 rows: a pack of its size has at most"):
        read_table(path)


def test_values_of_lists_are_counted_before_they_are_read(tmp_path, monkeypatch):
    path = pack(tmp_path / "pack", pa.table({"tokens": pa.array([[0] * (bounded_parquet.MOST_VALUES // 2 + 1)] * 2)}))
    monkeypatch.setattr(pq.ParquetFile, "iter_batches", lambda *_: pytest.fail("a page was read"))
    with pytest.raises(UserError, match="values: a pack of its size has at most"):
        read_table(path)


def test_a_text_that_many_rows_repeat_is_decoded_a_few_rows_at_a_time(tmp_path, monkeypatch):
    """A dictionary holds the text once, so that the file and its pages are small."""
    monkeypatch.setattr(bounded_parquet, "MOST_BYTES", 2**20)
    monkeypatch.setattr(bounded_parquet, "BYTES_A_ROW", 2**10)
    monkeypatch.setattr(bounded_parquet, "BYTES_A_BYTE", 2**3)
    monkeypatch.setattr(bounded_parquet, "BATCH_BYTES", 2**20)
    keys = [hashlib.sha256(bytes([number % 256, number // 256])).hexdigest() for number in range(1000)]
    path = pack(tmp_path / "pack", pa.table({"key": keys, "prediction": ["x" * 2**17] * 1000}))
    rows = []
    with pytest.raises(UserError, match="rows of more than"):
        rows.extend(read_table(path).rows)
    assert 0 < len(rows) < 20  # of a thousand


@pytest.mark.parametrize(
    "column",
    [pa.array([1], pa.timestamp("ns")), pa.array([[[1]]]), pa.array([b"x"]), pa.array([1.0], pa.float32())],
    ids=lambda column: str(column.type),
)
def test_columns_of_types_that_no_pack_has_are_refused(column, tmp_path):
    with pytest.raises(UserError, match="which no pack has"):
        read_records(pack(tmp_path / "pack", pa.table({"key": column})))


@pytest.mark.parametrize(
    "about",
    [
        *([], {}, {"version": 1}, {"version": 1, "layouts": 3, "json": []}, {"version": 1, "layouts": [3], "json": 4}),
        {"version": 1, "layouts": [["key"] * 9], "json": []},
    ],
)
def test_broken_metadata_is_one_line(about, tmp_path, capsys):
    pack(tmp_path / "pack", pa.table({"_fields": pa.array([0], pa.int32()), "key": ["0123456789abcdef"]}), about)
    assert kvbench("verify", str(tmp_path / "pack")) == 1
    told = capsys.readouterr()
    assert "is not a file of `kvbench pack`" in " ".join(told.out.split()) and "Traceback" not in told.out + told.err


def test_a_json_column_that_is_no_json_is_one_line(tmp_path):
    about = {"version": 1, "layouts": [["key"]], "json": ["key"]}
    path = pack(tmp_path / "pack", pa.table({"_fields": pa.array([0], pa.int32()), "key": ["[" * 5000]}), about)
    with pytest.raises(UserError, match="is not a file of"):
        read_records(path)


def test_values_in_texts_of_json_are_counted_before_they_are_made(tmp_path, monkeypatch):
    about = {"version": 1, "layouts": [["key"]], "json": ["key"]}
    text = "[" + "[]," * (bounded_parquet.MOST_VALUES // 2) + "0]"
    path = pack(tmp_path / "pack", pa.table({"_fields": pa.array([0], pa.int32()), "key": [text]}), about)
    monkeypatch.setattr(parquet_records.json, "loads", lambda given: pytest.fail("made") if given == text else about)
    with pytest.raises(UserError, match="more than 4,194,304 values in texts of JSON"):
        read_records(path)


def test_an_honest_pack_is_far_within_all_limits(tmp_path):
    made = [record(sample=f"s{number}", checksum=None, key=f"{number:016x}") for number in range(50)]
    for one in made:
        del one["checksum"]
    write_records(tmp_path / PACK, made)
    assert read_records(tmp_path / PACK).records == made


LONG = 2**15  # tokens of AIME's longest answers, of which many may end in a loop


@pytest.mark.parametrize(
    "tokens", [[(n * n * 7919) % 150_000 for n in range(LONG)], [220] * LONG], ids=["text", "loop"]
)
def test_records_of_long_answers_are_within_all_limits(tokens, tmp_path, monkeypatch):
    for limit in ("MOST_BYTES", "MOST_VALUES"):  # for many records these are nothing
        monkeypatch.setattr(bounded_parquet, limit, 0)
    monkeypatch.setattr(limits, "LINES", 0)
    made = [record(sample=name, key=digest(name), tokens=tokens, prediction="word" * LONG) for name in ("a", "b", "c")]
    for one in made:
        one.pop("checksum", None)
    write_records(tmp_path / PACK, made)
    assert read_records(tmp_path / PACK).records == made
    (tmp_path / RECORDS).write_bytes(b"".join(map(to_line, made)))
    limits.check_sizes(tmp_path)


def test_a_line_longer_than_any_record_is_refused_and_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "LINE", 1000)
    (tmp_path / RECORDS).write_bytes(b"x" * 5000)
    (check,) = verify(tmp_path)
    assert check.verdict is Verdict.WRONG and "a line of more than 1,000 bytes" in check.notes[0]


def test_more_bytes_than_records_are_worth_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "LINES", 1000)
    monkeypatch.setattr(limits, "A_LINE", 100)
    (tmp_path / RECORDS).write_bytes(b"".join(to_line(record(sample=f"s{number}")) for number in range(9)))
    (check,) = verify(tmp_path)
    assert check.verdict is Verdict.WRONG and "bytes in 9 lines: at most 1,000 are read" in check.notes[0]


def test_a_manifest_of_more_bytes_than_any_has_is_damaged(tmp_path):
    (tmp_path / "manifests").mkdir()
    path = tmp_path / "manifests" / "a.json"
    path.write_text(json.dumps({"run": "a", "padding": "x" * LARGEST}))
    found, damaged = read_manifests(tmp_path)
    assert not found and [*damaged] == [path] and "larger than 1,048,576 bytes" in damaged[path]


@pytest.mark.parametrize("count", [3, 4])
def test_manifests_are_counted_before_they_are_read(count, tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "MOST_MANIFESTS", 3)
    (tmp_path / RECORDS).write_bytes(to_line(record()))
    (tmp_path / "manifests").mkdir()
    for number in range(count):
        (tmp_path / "manifests" / f"{number}.json").write_text("{}")
    assert (len(verify(tmp_path)) == 1) is (count > 3)


def test_a_range_has_so_many_numbers_and_no_more():
    assert len(numbers("1 to 10000 by 1")) == 10000
    for text in ("1 to 1000000000 by 1", "0 to 100 in 1000000000"):
        with pytest.raises(ValueError, match="at most 10,000 numbers"):
            numbers(text)


def test_samples_are_counted_while_they_are_made():
    made = []
    with pytest.raises(UserError, match="more samples"), at_most(3):
        made.extend(Sample(str(number), "", (), 1) for number in range(10**9))
    assert len(made) == 3
    Sample("outside", "", (), 1)


def test_text_is_counted_while_it_is_tokenised():
    read = []
    counted = CountedTokenizer(lambda text: read.append(text), 10)
    counted("12345678")
    with pytest.raises(UserError, match="more than 10 characters"):
        counted("123")
    assert read == ["12345678"]


def test_settings_are_counted_from_their_lists():
    methods = {"a": {"_target_": "x"}, "b": {"_target_": "x", "ratio": [0.1, 0.2]}, "_target_": None}
    limits.check_settings(methods, [0.1] * (limits.SETTINGS - 2), None)
    with pytest.raises(UserError, match="4,097 settings are requested: at most 4,096"):
        limits.check_settings(methods, [0.1] * (limits.SETTINGS - 1), None)
    with pytest.raises(UserError, match="more than 4,096 settings"):
        limits.check_product({str(number): [1, 2] for number in range(60)})
