"""Records of many runs as one frame: duplicates are counted, contradictions are never merged."""

import json

import pandas as pd
import pytest

from kvbench.errors import UserError
from kvbench.records import check, gather, load, manifests
from kvbench.records.consistency import differences
from kvbench.records.load import PROPERTIES, files
from kvbench.records.manifest import parse
from kvbench.records.provenance import PROVENANCE, processor
from kvbench.runner.status import rows
from tests.support.loaded_records import manifest, record, write


def kinds(findings) -> list[tuple[str, bool]]:
    return [(finding.kind, finding.wrong) for finding in findings]


def test_shards_and_runs_below_a_folder_are_one_frame_with_their_provenance(tmp_path):
    write(tmp_path / "b", [record(3)], manifest(dtype="torch.bfloat16"))
    write(tmp_path / "a", [record(2, run="r2"), record(1)], manifest(), manifest("r2", git=None), shard=".0-of-2")
    write(tmp_path / "a", [record(0)], shard=".1-of-2")
    records, findings = gather(tmp_path)
    assert not findings
    assert records["sample"].tolist() == ["s2", "s1", "s0", "s3"]
    assert records["folder"].tolist() == [str(tmp_path / "a")] * 3 + [str(tmp_path / "b")]
    assert records["git"].tolist() == [None] + ["ef" * 20] * 3
    assert records["dtype"].tolist() == ["torch.float32"] * 3 + ["torch.bfloat16"]
    assert list(records) == [*record(), "folder", "started", "checkpoint_dtype", *PROVENANCE, "r_bytes_16"]
    assert not records[["key", "folder", *PROVENANCE]].duplicated().any()
    several = gather(tmp_path / "b", tmp_path / "a", tmp_path)[0]  # in the order asked for, and each file once
    assert several["sample"].tolist() == ["s3", "s2", "s1", "s0"]
    pd.testing.assert_frame_equal(gather(tmp_path / "a")[0], records.iloc[:3], check_dtype=False)


def test_a_folder_that_is_not_there_or_holds_nothing_is_named(tmp_path):
    write(tmp_path / "a", [record()])
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=f"there is no folder '{tmp_path / 'nowhere'}'"):
        load(tmp_path / "a", tmp_path / "nowhere")
    with pytest.raises(UserError, match=r"empty holds no records\.jsonl"):
        load(tmp_path / "a", tmp_path / "empty")
    with pytest.raises(UserError, match="name a folder of records"):
        load()
    with pytest.raises(UserError, match="empty holds no manifests"):
        manifests(tmp_path / "empty")


def test_a_run_that_was_moved_and_left_a_link_is_loaded_from_its_old_place(tmp_path):
    """A run goes on through such a link, and tables and status of the folder above left it out without a word."""
    write(tmp_path / "runs" / "a", [record(0)], manifest())
    moved = tmp_path / "runs" / "b"
    moved.symlink_to(write(tmp_path / "disk" / "b", [record(1, run="r2")], manifest("r2")).parent)
    records, findings = gather(tmp_path / "runs")
    assert sorted(records.folder) == [str(tmp_path / "runs" / "a"), str(moved)] and not findings
    assert len(rows(tmp_path / "runs")) == len(manifests(tmp_path / "runs")) == 2
    assert len(files([tmp_path / "runs"], linked=False)) == 1  # as of what others hand in


def test_a_run_killed_before_its_first_record_loads_as_none(tmp_path):
    write(tmp_path, [], manifest())
    records, findings = gather(tmp_path)
    assert len(records) == 0 and not findings and check(records) == []


def test_a_record_that_is_there_again_is_counted_told_and_kept_once(tmp_path):
    first = write(tmp_path / "a", [record(0), record(1), record(1)], manifest())
    slower = {
        "run": "r2",
        "model": "the same weights by another name",
        "decode_seconds": 0.7,
        "peak_cache_bytes": 6000,
        "peak_device_bytes": 1,
        "decode_batch": 9,
        "decode_engine": "graph",
    }
    again = write(tmp_path / "b", [record(1, **slower), record(0, **slower), record(2)], manifest(), manifest("r2"))
    records, findings = gather(tmp_path)
    assert kinds(findings) == [("duplicate", False)] * 2
    assert f"1 record with the same outcome twice in {first}; one is kept" == findings[0].message
    assert f"2 records with the same outcome in {first} and {again}; one is kept" == findings[1].message
    assert records["sample"].tolist() == ["s0", "s1", "s2"]
    assert records["decode_seconds"].tolist() == [0.5] * 3
    with pytest.warns(UserWarning, match=f"in {first} and {again}"):
        load(tmp_path)


@pytest.mark.parametrize(
    "other",
    [{"prediction": "1"}, {"tokens": [1, 2]}, {"scores": {"digits": 0.5}, "prediction": "7"}, {"stored_bytes": 1001}],
)
def test_a_record_with_two_outcomes_is_refused_with_files_and_fields(other, tmp_path):
    first = write(tmp_path / "a", [record(0), record(1)], manifest())
    again = write(tmp_path / "b", [record(1, **other), record(0)], manifest())
    with pytest.raises(UserError) as told:
        load(tmp_path)
    for word in (str(first), str(again), "1 record with different outcomes", "sample 's1' under 'snapkv 0.2'", *other):
        assert word in str(told.value)
    assert "decode_seconds" not in str(told.value)
    assert kinds(gather(tmp_path)[1]) == [("duplicate", False), ("outcome", True)]


@pytest.mark.parametrize("order", [(None, {"kl": 0.5}), ({"kl": 0.5}, None)], ids=str)
def test_of_two_copies_of_which_one_run_measured_distances_that_one_is_kept(order, tmp_path):
    for name, distance in zip("ab", order, strict=True):
        write(tmp_path / name, [record(0, distance=distance)], manifest())
    records, findings = gather(tmp_path)
    assert kinds(findings) == [("duplicate", False)] and records["distance"].tolist() == [{"kl": 0.5}]
    write(tmp_path / "c", [record(0, distance={"kl": 0.25})], manifest())
    assert ("outcome", True) in kinds(gather(tmp_path)[1])


def test_a_speed_by_another_engine_is_another_outcome():
    of_speed = {"kind": "speed", "decode_engine": "eager"}
    assert differences(of_speed, of_speed | {"decode_engine": "graph"}) == ("decode_engine",)


@pytest.mark.parametrize(
    "made_by, changes, told",
    [
        ({"dtype": "torch.bfloat16"}, {}, "dtype torch.float32 | torch.bfloat16"),
        ({"device": "cuda", "hardware": {"gpus": ["H200"]}}, {}, "device cpu | cuda; processor AMD EPYC | H200"),
        ({"git": "01" * 20 + "-dirty"}, {}, "git efefefefef | 0101010101-dirty"),
        ({"packages": {"torch": "2.14.0", "transformers": "5.23.0"}}, {}, "torch 2.13.0 | 2.14.0"),
        ({"model": {"source": "org/model", "revision": "01" * 20}}, {}, "weights "),
        ({"kvbench": "0.2.0", "chat_template": "none"}, {}, "chat_template auto | none; kvbench 0.1.0 | 0.2.0"),
        ({}, {"memory": "stream"}, "memory shared | stream"),
        ({"first_token": "compressed"}, {}, "first_token full | compressed"),
        ({"seed": 2}, {}, "nothing that the manifests hold"),
    ],
)
def test_two_rows_for_one_cell_are_a_conflict_that_says_in_what_they_differ(made_by, changes, told, tmp_path):
    write(tmp_path / "a", [record(0), record(1), record(2)], manifest())
    write(tmp_path / "b", [record(i, **changes) | {"key": f"other {i}"} for i in (1, 2, 3)], manifest(**made_by))
    with pytest.warns(UserWarning, match="they differ in"):
        records = load(tmp_path)
    assert len(records) == 6  # never merged
    (finding,) = check(records)
    assert (finding.kind, finding.wrong) == ("conflict", True)
    assert "niah · smollm2-135m · question visible: 2 cells" in finding.message
    assert "sample 's1' under 'snapkv 0.2'" in finding.message
    assert f"they differ in {told}" in finding.message
    assert str(tmp_path / "a") in finding.message and str(tmp_path / "b") in finding.message
    one = records[records["folder"] == str(tmp_path / "a")]
    assert check(one) == [] and len(one) == 3


def test_settings_of_one_name_with_other_parameters_are_noted_and_are_no_conflict(tmp_path):
    other = {"parameters": '{"scoring": {"window": 32}, "sinks": 8, "heads": "ada"}'}
    write(tmp_path / "a", [record(0), record(1)], manifest())
    write(tmp_path / "b", [record(i, **other) | {"key": f"other {i}"} for i in (0, 1)], manifest())
    with pytest.warns(UserWarning, match="a mean over the name alone would mix them"):
        records = load(tmp_path)
    (note,) = check(records)
    assert (note.kind, note.wrong) == ("settings", False)
    assert "'snapkv 0.2'" in note.message and 'parameters sinks 4 | 8, heads default | "ada"' in note.message
    write(tmp_path / "c", [record(0, **other) | {"key": "c"}], manifest(dtype="torch.bfloat16"))
    _, conflict = check(gather(tmp_path)[0])  # two rows with the same parameters
    assert conflict.kind == "conflict" and "1 cell " in conflict.message and "in dtype" in conflict.message


def test_cells_that_differ_in_different_things_are_told_apart(tmp_path):
    write(tmp_path / "a", [record(0), record(1)], manifest())
    write(tmp_path / "b", [record(0) | {"key": "b"}], manifest(dtype="torch.bfloat16"))
    write(tmp_path / "c", [record(1) | {"key": "c"}], manifest(git="01" * 20))
    first, second = check(gather(tmp_path)[0])
    assert "1 cell " in first.message and "'s0'" in first.message and "in dtype" in first.message
    assert "1 cell " in second.message and "'s1'" in second.message and "in git" in second.message


def test_data_sets_with_samples_of_the_same_names_are_tables_of_their_own(tmp_path):
    other = {"data_sha256": "01" * 32, "dtype": "torch.bfloat16"}
    write(tmp_path / "a", [record(0), record(1)], manifest())
    write(tmp_path / "b", [record(0) | {"key": "b"}], manifest(**other))
    with pytest.warns(UserWarning, match="2 data sets with samples of the same names"):
        records = load(tmp_path)
    (note,) = check(records)
    assert (note.kind, note.wrong) == ("data", False)
    write(tmp_path / "c", [record(0) | {"key": "c"}], manifest(data_sha256="01" * 32))
    _, conflict = check(gather(tmp_path)[0])
    assert conflict.kind == "conflict" and "differ in dtype" in conflict.message  # within the second data set
    write(tmp_path / "b", [record(2) | {"key": "b"}], manifest("r1", data_sha256="01" * 32))
    write(tmp_path / "c", [record(3) | {"key": "c"}], manifest("r1", data_sha256="01" * 32))
    assert check(gather(tmp_path)[0]) == []  # tasks that were run one by one are one table


def test_the_question_hidden_and_visible_are_two_tables(tmp_path):
    write(tmp_path / "a", [record(0), record(0, question="hidden")], manifest())
    assert check(load(tmp_path)) == []


def test_settings_from_other_code_are_worth_a_note_and_from_other_weights_wrong(tmp_path):
    write(tmp_path / "a", [record(0, "full")], manifest())
    write(tmp_path / "b", [record(0, "snapkv 0.2")], manifest(git="01" * 20, data_sha256="01" * 32))
    (note,) = check(gather(tmp_path)[0])
    assert (note.kind, note.wrong) == ("mixed", False)
    assert note.message.endswith("records of more than one git efefefefef | 0101010101")
    write(tmp_path / "b", [record(0, "snapkv 0.2")], manifest(dtype="torch.float16", device="cuda"))
    (wrong,) = check(gather(tmp_path)[0])
    assert (wrong.kind, wrong.wrong) == ("mixed", True)
    assert "dtype torch.float32 | torch.float16; device cpu | cuda" in wrong.message


def test_settings_whose_first_token_comes_from_elsewhere_are_no_table(tmp_path):
    write(tmp_path / "a", [record(0, "full")], manifest())
    write(tmp_path / "b", [record(0, "snapkv 0.2")], manifest(first_token="compressed"))
    (wrong,) = check(gather(tmp_path)[0])
    assert (wrong.kind, wrong.wrong) == ("mixed", True)
    assert wrong.message.endswith("records of more than one first_token full | compressed")


def test_records_whose_run_has_no_manifest_are_counted(tmp_path):
    write(tmp_path, [record(0), record(1, run="r2"), record(2, run="r2")], manifest())
    with pytest.warns(UserWarning, match=f"no manifest of run r2: the origin of 2 records in {tmp_path} is unknown"):
        records = load(tmp_path)
    assert records["dtype"].isna().tolist() == [False, True, True]


def test_a_torn_line_is_wrong_until_its_record_is_made_again(tmp_path):
    path = write(tmp_path, [record(0)], manifest(), shard=".1-of-3")
    with path.open("a") as file:
        file.write(json.dumps(record(1))[:-9])
    (finding,) = gather(tmp_path)[1]
    assert (finding.kind, finding.wrong) == ("torn", True)
    assert finding.message == f"1 line of {path} torn or damaged: 1 record missing until a run makes them again"
    write(tmp_path, [record(1)])  # by a run in one piece
    (finding,) = gather(tmp_path)[1]
    assert (finding.kind, finding.wrong) == ("torn", False) and "made again since" in finding.message


def test_manifests_are_a_frame_of_runs(tmp_path):
    write(tmp_path / "a", [], manifest(), manifest("r2", status="running", slurm={"job": 7}))
    write(tmp_path / "b", [], manifest("r3"))
    (tmp_path / "b" / "manifests" / "cut.json").write_text('{"run": "r4", ')
    runs = manifests(tmp_path).set_index("run")
    assert runs["status"].to_dict() == {"r1": "finished", "r2": "running", "r3": "finished"}
    assert runs.loc["r2", "manifest"]["slurm"] == {"job": 7}
    assert set(PROVENANCE) < set(runs) and runs.loc["r3", "folder"] == str(tmp_path / "b")


@pytest.mark.parametrize(
    "device, gpus, told",
    [
        ("cuda", ["NVIDIA H200"], "NVIDIA H200"),
        ("cuda", ["A100", "A100", "T4"], "2 × A100, T4"),
        ("cpu", ["A100"], "EPYC"),
        ("cpu", [], "EPYC"),
    ],
)
def test_the_processor_is_what_the_run_computed_on(device, gpus, told):
    assert processor(device, {"cpu": "EPYC", "gpus": gpus}) == told


@pytest.mark.parametrize("name", PROPERTIES)
@pytest.mark.parametrize("odd", [[1], {"a": 1}], ids=["list", "object"])
def test_lists_and_objects_in_columns_that_tables_group_by_are_text(name, odd, tmp_path):
    values = [5, None, "x", odd]
    write(tmp_path / "a", [record(i) | {name: value} for i, value in enumerate(values)], manifest())
    records = load(tmp_path)
    assert records[name].dropna().tolist() == ["5", "x", json.dumps(odd)]
    assert records.groupby(name).size().sum() == 3


@pytest.mark.parametrize("number", [10**18, 2**63 - 1, -(2**63), 2**63, 10**30])
def test_a_manifest_has_integers_of_64_bits_as_numbers_and_larger_ones_as_text(number):
    found = parse(f'{{"a": {number}}}'.encode())["a"]
    assert found == (number if -(2**63) <= number < 2**63 else str(number))
    assert parse(b"1" * 5000) == "1" * 5000
