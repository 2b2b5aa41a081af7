"""kvbench records: counts, faults, export."""

import json

import pandas as pd
import pytest

from kvbench.records import load
from kvbench.records.pack import write_pack
from kvbench.records.store import RECORDS, Store, read_records
from tests.support import records as made_up
from tests.support.command import kvbench
from tests.support.loaded_records import manifest, record, write, write_manifests


def test_the_command_counts_what_is_there_and_ends_well(tmp_path, capsys):
    records = [record(i, setting) for setting in ("full", "snapkv 0.2") for i in range(3)][:-1]
    write(tmp_path / "a", records, manifest(), manifest("r2", status="stopped by UserError"))
    assert kvbench("records", str(tmp_path)) == 0
    told = capsys.readouterr().out
    assert "records    5 in 1 file of 1 folder\n" in told
    assert "runs       2: 1 finished, 1 stopped by UserError\n" in told
    (row,) = [line.split() for line in told.splitlines() if line.startswith("niah")]
    assert row == ["niah", "smollm2-135m", "visible", "3", "2", "5", "1"]
    assert told.endswith("no problem found\n")


def test_the_times_of_runs_are_added_up(tmp_path, capsys):
    times = [manifest(wall_seconds=5400), manifest("r2", wall_seconds=3000.5)]
    write(tmp_path / "a", [record(0)], *times)
    kvbench("records", str(tmp_path))
    assert "time       2 h 20 min, the sum over the runs\n" in capsys.readouterr().out
    write(tmp_path / "b", [record(1)], *times, killed := manifest("r3", status="running"))
    del killed["wall_seconds"]
    write_manifests(tmp_path / "b", killed)
    kvbench("records", str(tmp_path))
    assert "time       2 h 20 min, the sum over the runs; without 1 run that recorded none\n" in capsys.readouterr().out


def test_what_probes_saw_of_a_benchmark_is_counted_by_itself(tmp_path, capsys):
    write(tmp_path / "a", [record(i, "full") for i in range(3)], manifest())
    write(tmp_path / "b", [made_up.record("probe", model="smollm2-135m", setting="lazy_mass")], manifest())
    assert kvbench("records", str(tmp_path)) == 0
    rows = [line.split()[-4:] for line in capsys.readouterr().out.splitlines() if line.startswith("niah")]
    assert rows == [["3", "1", "3", "0"], ["1", "1", "1", "0"]]


def test_a_pack_beside_its_run_and_other_data_are_no_problem(tmp_path, capsys):
    write(tmp_path / "runs" / "a", [record(i) for i in range(3)], manifest())
    write(tmp_path / "runs" / "b", [record(0) | {"key": "b", "run": "r2"}], manifest("r2", data_sha256="01" * 32))
    write_pack(tmp_path / "runs" / "a", tmp_path / "runs" / "a.pack")
    assert kvbench("records", str(tmp_path / "runs")) == 0
    told = capsys.readouterr().out
    assert "runs       2: 2 finished\n" in told and "duplicate" not in told
    rows = [line.split()[-4:] for line in told.splitlines() if line.startswith("niah")]
    assert rows == [["3", "1", "3", "0"], ["1", "1", "1", "0"]]  # a table for each data set, neither with a gap
    assert told.count("\ndata ") == 1 and told.endswith("\nno problem found\n")
    assert kvbench("status", str(tmp_path / "runs" / "a.pack")) == 2
    assert "has only packs" in capsys.readouterr().err
    kvbench("status", str(tmp_path / "runs"))
    assert ".pack" not in capsys.readouterr().out


def test_settings_of_one_name_are_counted_apart_and_are_no_problem(tmp_path, capsys):
    others = [record(i, parameters='{"sinks": 8}') | {"key": f"other {i}"} for i in range(2)]
    write(tmp_path / "a", [record(i) for i in range(3)] + others, manifest())
    assert kvbench("records", str(tmp_path)) == 0
    told = capsys.readouterr().out
    (row,) = [line.split()[-4:] for line in told.splitlines() if line.startswith("niah ")]
    assert row == ["3", "2", "5", "1"]
    assert "\nsettings   niah · " in told and told.endswith("\nno problem found\n")


def test_copies_after_the_first_are_set_aside_on_request_and_the_folder_is_whole_again(tmp_path, capsys):
    folder = tmp_path / "my runs"  # a command to paste has it in quotation marks
    write(folder, [record(0), record(1), record(1, prediction="b")], manifest(), shard=".0-of-2")
    path = write(folder, [record(1, prediction="c"), record(2), record(0)], manifest(), shard=".1-of-2")
    assert kvbench("records", str(folder)) == 1
    assert f"kvbench records '{folder}' --set-aside-copies keeps the first" in capsys.readouterr().out.replace(
        "\n", " "
    )
    copies = [line for n, line in enumerate(path.read_bytes().splitlines(keepends=True)) if n != 1]
    assert kvbench("records", str(folder), "--set-aside-copies") == 0
    told = capsys.readouterr().out
    assert "2 records that had a copy before" in told and "1 record that had a copy before" in told
    assert load(folder)["sample"].tolist() == ["s0", "s1", "s2"]
    assert (folder / "records.1-of-2.torn").read_bytes() == b"".join(copies)
    assert kvbench("records", str(folder), "--set-aside-copies") == 0
    assert "set aside" not in capsys.readouterr().out


def test_copies_are_not_set_aside_under_a_run_nor_from_a_file_that_no_run_has(tmp_path, capsys):
    write(tmp_path, [record(0), record(0)], manifest())
    with Store(tmp_path):
        assert kvbench("records", str(tmp_path), "--set-aside-copies") == 2
    (tmp_path / "records-mine.jsonl").write_bytes((tmp_path / RECORDS).read_bytes())
    assert kvbench("records", str(tmp_path), "--set-aside-copies") == 2
    told = capsys.readouterr().err.splitlines()
    assert "another kvbench is writing" in told[0] and "records-mine.jsonl is no file of a run" in told[1]
    assert len(read_records(tmp_path / RECORDS).records) == 2


def test_the_command_tells_every_kind_of_fault_and_exits_with_1(tmp_path, capsys):
    first = write(tmp_path / "a", [record(0), record(1), record(2)], manifest())
    second = [record(0), record(1, prediction=""), record(2) | {"key": "2"}, record(3, run="r9")]
    path = write(tmp_path / "b", second, manifest(dtype="torch.bfloat16", git="01" * 20))
    path.write_bytes(path.read_bytes() + b"\0\0\0")
    assert kvbench("records", str(tmp_path), "--csv", str(tmp_path / "out.csv")) == 2  # contradictions are not exported
    assert not (tmp_path / "out.csv").exists()
    assert kvbench("records", str(tmp_path)) == 1
    told = capsys.readouterr()
    for kind in ("torn     !", "manifest !", "duplicate ", "outcome  !", "conflict !"):
        assert told.out.count(f"\n{kind} ") == 2, kind
    assert told.out.endswith("\n4 problems found\n")
    assert str(first) in told.err and told.err.count("\n") == 1


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_an_exported_frame_reads_back(suffix, tmp_path, capsys):
    mixed = [record(0, depth=50, scores={"digits": 1}), record(1, depth="half", scores={"rouge": 0.5}), record(2)]
    write(tmp_path / "runs", mixed, manifest())
    path = tmp_path / f"all.{suffix}"
    assert kvbench("records", str(tmp_path / "runs"), f"--{suffix}", str(path)) == 0
    assert f"written    {path}\n" in capsys.readouterr().out
    back = (pd.read_csv if suffix == "csv" else pd.read_parquet)(path)
    frame = load(tmp_path / "runs")
    assert list(back) == list(frame) and back["key"].tolist() == frame["key"].tolist()
    assert back["depth"].tolist()[:2] == ["50", "half"] and pd.isna(back["depth"][2])
    if suffix == "csv":
        assert [json.loads(scores) for scores in back["scores"]] == [made["scores"] for made in mixed]
        assert back["tokens"][0] == "[1, 2, 3]"
    else:
        assert back["scores"][1] == {"digits": None, "rouge": 0.5}
        assert back["tokens"][0].tolist() == [1, 2, 3]
    assert sorted(tmp_path.iterdir()) == sorted([path, tmp_path / "runs"])


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_records_without_scores_and_with_other_empty_mappings_are_exported(suffix, tmp_path):
    empty = {"scores": {}, "within": {"place": {}}, "listed": [{}]}
    write(tmp_path / "runs", [record(0, **empty), record(1, **empty)], manifest())
    path = tmp_path / f"all.{suffix}"
    assert kvbench("records", str(tmp_path / "runs"), f"--{suffix}", str(path)) == 0
    back = (pd.read_csv if suffix == "csv" else pd.read_parquet)(path)
    assert {name: [json.loads(text) for text in back[name]] for name in empty} == {
        name: [value] * 2 for name, value in empty.items()
    }


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_property_of_samples_may_be_named_self(suffix, tmp_path):
    write(tmp_path / "runs", [record(0, self="a"), record(1, self=[1])], manifest())
    path = tmp_path / f"all.{suffix}"
    assert kvbench("records", str(tmp_path / "runs"), f"--{suffix}", str(path)) == 0
    assert (pd.read_csv if suffix == "csv" else pd.read_parquet)(path)["self"].tolist() == ["a", "[1]"]


@pytest.mark.parametrize(
    ("suffix", "exported"), [("csv", ["'=cmd(1)", "'-5", "a\nb"]), ("parquet", ["=cmd(1)", "-5", "a\rb"])]
)
def test_text_that_looks_like_a_formula_is_quoted_in_csv_and_as_it_is_in_parquet(suffix, exported, tmp_path):
    outputs = ["=cmd(1)", "-5", "a\rb"]
    write(tmp_path / "runs", [record(i, prediction=text) for i, text in enumerate(outputs)], manifest())
    path = tmp_path / f"all.{suffix}"
    assert kvbench("records", str(tmp_path / "runs"), f"--{suffix}", str(path)) == 0
    assert (pd.read_csv if suffix == "csv" else pd.read_parquet)(path)["prediction"].tolist() == exported


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_text_that_is_no_unicode_is_stored_as_it_is_and_shown_as_far_as_it_can_be(suffix, tmp_path):
    """Half of a pair of surrogates, as in answers of broken data files."""
    odd = record(0, prediction="a\ud83db é", answers=["\ud83d", "é"])
    with Store(tmp_path / "run") as store:
        store.append(odd)
        store.append(record(1, prediction="é"))
    assert read_records(tmp_path / "run" / RECORDS)[0] == [odd, record(1, prediction="é")]
    write_manifests(tmp_path / "run", manifest())
    frame = load(tmp_path / "run")
    assert frame["prediction"].tolist() == ["a\ufffdb é", "é"]
    assert frame["answers"][0] == odd["answers"]
    path = tmp_path / f"all.{suffix}"
    assert kvbench("records", str(tmp_path / "run"), f"--{suffix}", str(path)) == 0
    back = (pd.read_csv if suffix == "csv" else pd.read_parquet)(path)
    assert json.loads(back["answers"][0]) == odd["answers"]


@pytest.mark.parametrize(
    "option, name", [("parquet", "records.parquet"), ("csv", "records.jsonl"), ("csv", "records-1.jsonl")]
)
@pytest.mark.parametrize("below", ["runs", "runs/one"])
def test_an_export_is_never_where_it_would_be_read_as_records(option, name, below, tmp_path, capsys):
    write(tmp_path / "runs" / "one", [record()], manifest())
    before = (tmp_path / "runs" / "one" / RECORDS).read_bytes()
    path = tmp_path / below / name
    assert kvbench("records", str(tmp_path / "runs"), f"--{option}", str(path)) == 2
    assert capsys.readouterr().err.startswith(f"kvbench: {path} would be read as records")
    assert [*tmp_path.rglob("records*")] == [tmp_path / "runs" / "one" / RECORDS]
    assert (tmp_path / "runs" / "one" / RECORDS).read_bytes() == before
    assert kvbench("records", str(tmp_path / "runs"), f"--{option}", str(tmp_path / name)) == 0


def test_two_exports_are_two_files(tmp_path, capsys):
    write(tmp_path / "runs", [record()], manifest())
    both = "--csv", str(tmp_path / "all"), "--parquet", str(tmp_path / "runs" / ".." / "all")
    assert kvbench("records", str(tmp_path / "runs"), *both) == 2
    told = capsys.readouterr().err
    assert told == f"kvbench: --csv and --parquet both write {tmp_path / 'all'}: choose another name for one of them\n"
    assert not (tmp_path / "all").exists()


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_an_export_that_cannot_be_written_is_one_line(suffix, tmp_path, capsys):
    write(tmp_path, [record()], manifest())
    assert kvbench("records", str(tmp_path), f"--{suffix}", str(tmp_path / "nowhere" / "all")) == 2
    told = capsys.readouterr().err
    assert told.startswith(f"kvbench: cannot write {tmp_path / 'nowhere' / 'all'}: ") and told.count("\n") == 1


def test_the_command_without_records_says_so(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert kvbench("records") == 2
    assert capsys.readouterr().err == "kvbench: there is no folder 'runs'\n"


def test_help_tells_of_files_findings_and_exit_codes(capsys):
    assert kvbench("records", "--help") == 0
    said = capsys.readouterr().out.lower()
    for word in ("folder", "--csv", "--parquet", "conflict", "exit code: 0"):
        assert word in said
