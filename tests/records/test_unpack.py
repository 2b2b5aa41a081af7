"""kvbench unpack: the command that made a pack's records goes on from them."""

import shutil

import pytest

from kvbench.records.manifest import read_manifests
from kvbench.records.pack import DROPPED
from kvbench.records.parquet_records import write_records
from kvbench.records.record_files import read_file
from kvbench.records.samples import read_samples
from kvbench.records.store import PACK, RECORDS, read_records
from kvbench.runner.verify.check_complete import complete
from kvbench.runner.verify.checks import verify
from kvbench.runner.verify.folder import read
from kvbench.runner.verify.verdict import Verdict
from tests.support.command import kvbench
from tests.support.loaded_records import manifest, record, write
from tests.support.runs import arguments, comparable, run

pytestmark = pytest.mark.heavy


@pytest.fixture
def packed(tiny_folder, tmp_path):
    """A pack of the first of three samples."""
    folder = run(*arguments(tiny_folder, tmp_path / "first", "limit=1"))
    assert kvbench("pack", str(folder), "--out", str(tmp_path / "pack")) in (0, None)
    return tmp_path / "pack"


def bare(folder) -> list[dict]:
    """Comparable records without what a pack leaves out."""
    return [{k: v for k, v in record.items() if k not in DROPPED} for record in comparable(folder)]


def test_a_run_goes_on_from_a_pack_to_the_records_of_an_undisturbed_one(
    packed, undisturbed, tiny_folder, tmp_path, capsys
):
    assert kvbench("unpack", str(packed), "--out", str(tmp_path / "runs")) in (0, None)
    folder = tmp_path / "runs" / undisturbed.name
    assert str(folder) in capsys.readouterr().out
    unpacked = read_records(folder / RECORDS)[0]
    assert unpacked == read_file(packed / PACK)[0] and len(unpacked) == 9
    assert run(*arguments(tiny_folder, tmp_path / "runs")) == folder
    assert read_records(folder / RECORDS)[0][:9] == unpacked
    assert bare(folder) == bare(undisturbed)
    there = [manifest["there"] for manifest in read_manifests(folder)[0].values()]
    assert there == [0, 9]
    assert kvbench("status", str(tmp_path / "runs")) == 0
    checks = {check.name: check.verdict for check in verify(folder, {"model.path": str(tiny_folder)})}
    assert Verdict.WRONG not in checks.values()
    assert {checks[name] for name in ("keys", "samples", "scores", "answers")} == {Verdict.PROVEN}


def test_a_smaller_run_lists_the_samples_of_all_records_that_a_pack_brought(undisturbed, tiny_folder, tmp_path):
    assert kvbench("pack", str(undisturbed), "--out", str(tmp_path / "pack")) in (0, None)
    assert kvbench("unpack", str(tmp_path / "pack"), "--out", str(tmp_path / "runs")) in (0, None)
    folder = run(*arguments(tiny_folder, tmp_path / "runs", "method=knorm", "limit=1"))
    assert read_samples(folder) == read_samples(undisturbed)
    assert complete(read(folder)).verdict is Verdict.PLAUSIBLE


def test_nothing_is_overwritten(packed, tmp_path, capsys):
    command = "unpack", str(packed), "--out", str(tmp_path / "runs")
    assert kvbench(*command) in (0, None)
    assert kvbench(*command) == 2
    assert "exists" in capsys.readouterr().err


@pytest.mark.parametrize(
    "change, told",
    [
        (lambda pack: (pack / PACK).unlink(), "is no pack"),
        (lambda pack: write_records(pack / PACK, [record(0), record(0)]), "each of them once"),
        (lambda pack: write_records(pack / PACK, []), "0 whole records"),
        (lambda pack: shutil.rmtree(pack / "manifests"), "0 run folders"),
        (lambda pack: (pack / "manifests" / "r2.json").write_text("{"), "1 are damaged"),
    ],
)
def test_what_is_no_whole_pack_of_a_run_is_refused(change, told, tmp_path, capsys):
    write(tmp_path / "run", [record(0)], manifest())
    assert kvbench("pack", str(tmp_path / "run")) in (0, None)
    change(tmp_path / "run.pack")
    assert kvbench("unpack", str(tmp_path / "run.pack"), "--out", str(tmp_path / "runs")) == 2
    assert told in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


def test_a_pack_that_leaves_out_what_identifies_its_run_is_refused(tmp_path, capsys):
    write(tmp_path / "run", [record(0)], manifest(model={"tokenizer": "/home/joe/tokenizer"}))
    assert kvbench("pack", str(tmp_path / "run")) in (0, None)
    assert kvbench("unpack", str(tmp_path / "run.pack"), "--out", str(tmp_path / "runs")) == 2
    assert "left out, so it cannot be continued" in capsys.readouterr().err


def test_a_name_in_a_pack_leads_nowhere_else(tmp_path):
    write(tmp_path / "run", [record(0, model="../../elsewhere")], manifest())
    assert kvbench("pack", str(tmp_path / "run")) in (0, None)
    assert kvbench("unpack", str(tmp_path / "run.pack"), "--out", str(tmp_path / "runs")) in (0, None)
    (folder,) = (tmp_path / "runs").iterdir()
    assert folder.name.startswith("niah-..-..-elsewhere-")
