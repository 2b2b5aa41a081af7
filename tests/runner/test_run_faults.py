"""Faults injected under whole runs of the command: one line, exit code 2, and the same command goes on from there."""

import hashlib
import itertools
import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from omegaconf import OmegaConf

from kvbench import __main__ as entry
from kvbench.evaluation import answer
from kvbench.records import check, gather, load
from kvbench.records.provenance import PROVENANCE
from kvbench.records.samples import SAMPLES
from kvbench.records.store import RECORDS, Store, parse, records_name, to_line
from kvbench.runner import manifest as run_manifest
from kvbench.runner import run as main
from kvbench.runner.starting_note import STARTING
from kvbench.utils.hashing import file_hash
from tests.support.disks import files_up_to, read_only, resize, small_disk
from tests.support.paths import ROOT
from tests.support.runs import arguments, compose, outcomes

pytestmark = pytest.mark.heavy


@pytest.fixture
def command(tiny_folder, capsys):
    """The command as far as a process of its own is not needed: its exit code and standard error."""

    def run(out: Path, *more: str) -> tuple[int, str]:
        capsys.readouterr()
        few = ("method=[full,snapkv]", "ratio=0.5", *more)
        try:
            with entry.one_line_errors():
                entry._run(OmegaConf.create(compose(*arguments(tiny_folder, out, *few)).plain))
        except SystemExit as end:
            return end.code, capsys.readouterr().err
        return 0, capsys.readouterr().err

    return run


@pytest.fixture(scope="module")
def whole(tiny_folder, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("whole")
    return main.run(compose(*arguments(tiny_folder, out, "method=[full,snapkv]", "ratio=0.5")))


def stopped(outcome: tuple[int, str], message: str) -> None:
    """One line says what is wrong, with exit code 2 and no traceback."""
    code, told = outcome
    assert code == 2 and "Traceback" not in told
    (line,) = [line for line in told.splitlines() if line.startswith("kvbench:")]
    assert message in line and told.endswith(line + "\n")


def manifests(folder: Path) -> list[dict]:
    return [json.loads(path.read_text()) for path in sorted((folder / "manifests").glob("*.json"))]


@pytest.mark.heavy
def test_a_disk_that_gets_full_stops_a_run_and_room_lets_it_go_on(command, whole, tmp_path):
    folder = tmp_path / whole.name
    content = (whole / RECORDS).read_bytes()
    with files_up_to(len(content) * 2 // 3):
        stopped(command(tmp_path), f"cannot write records to {folder / RECORDS}: File too large; all earlier ones are")
    made = len(gather(folder)[0])
    assert 0 < made < 6
    (manifest,) = manifests(folder)
    assert (manifest["status"], manifest["records"]) == ("stopped by UserError", made)
    assert command(tmp_path)[0] == 0
    assert outcomes(folder) == outcomes(whole)
    assert (folder / "table.md").exists()


@pytest.mark.heavy
def test_a_disk_of_its_own_that_is_full_before_the_records_then_before_the_figures(command, whole, tmp_path):
    folder = tmp_path / whole.name
    (manifest,) = (whole / "manifests").iterdir()
    pages = 3 + sum(-(-path.stat().st_size // 4096) for path in (manifest, whole / SAMPLES))  # for records, two locks
    with small_disk(tmp_path, f"{4 * pages}k"):
        stopped(command(tmp_path), f"cannot write records to {folder / RECORDS}: No space left on device")
        assert 0 < len(gather(folder)[0]) < 6
        resize(tmp_path, f"{4 * pages + 24}k")
        stopped(command(tmp_path), f"cannot write the report to {folder}: No space left on device; the records are")
        assert outcomes(folder) == outcomes(whole)
        resize(tmp_path, "2m")
        assert command(tmp_path)[0] == 0
        assert (folder / "heatmap.pdf").stat().st_size > 0


@pytest.mark.heavy
def test_a_report_that_cannot_be_written_is_told_and_made_by_the_same_command(command, whole, tmp_path):
    shutil.copytree(whole, tmp_path / whole.name)
    table = tmp_path / whole.name / "table.md"
    table.unlink()
    table.mkdir()
    stopped(command(tmp_path), f"cannot write the report to {tmp_path / whole.name}: Is a directory; the rec")
    table.rmdir()
    assert command(tmp_path)[0] == 0 and table.exists()


@pytest.mark.heavy
def test_a_gpu_without_memory_for_one_sequence_is_told_and_the_records_before_stay(
    command, whole, tmp_path, monkeypatch
):
    decode, answered = answer.decode, []

    def full(model, cache, logits, *rest, **options):
        answered.append(len(logits))
        if len(answered) > 3:
            raise torch.OutOfMemoryError(
                "CUDA out of memory. Tried to allocate 3.00 GiB. GPU 0 has a total of\nmuch more"
            )
        return decode(model, cache, logits, *rest, **options)

    monkeypatch.setattr(answer, "decode", full)
    outcome = command(tmp_path, "decode.batch=1")
    stopped(outcome, "memory is full while making a record: CUDA out of memory. Tried to allocate 3.00 GiB;")
    (folder,) = tmp_path.iterdir()
    assert manifests(folder)[0]["status"] == "stopped by UserError"
    assert len(load(folder)) == 3
    monkeypatch.setattr(answer, "decode", decode)
    assert command(tmp_path)[0] == 0
    assert outcomes(folder) == outcomes(whole)


def test_a_read_only_folder_is_told_before_any_work(command, whole, tmp_path):
    shutil.copytree(whole, tmp_path / whole.name)
    with read_only(tmp_path):
        stopped(command(tmp_path), f"cannot write records to {tmp_path / whole.name}: Read-only file system")
        assert len(load(tmp_path)) == 6


def test_a_read_only_output_folder_is_told_under_slurm_too(command, tmp_path, monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    with read_only(tmp_path):
        stopped(command(tmp_path), f"cannot write {tmp_path / STARTING}")


@pytest.mark.heavy
def test_a_second_command_on_one_shard_waits_for_the_first_to_end_or_be_killed(command, whole, tmp_path):
    folder = tmp_path / whole.name
    code = f"from kvbench.records.store import *; s = Store(Path({str(folder)!r})); print(1, flush=True); input()"
    first = subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert first.stdout.readline() == "1\n"
    stopped(command(tmp_path), f"another kvbench is writing {folder / RECORDS}: wait for it or stop it")
    assert not (folder / "manifests").exists()
    first.kill()
    assert first.wait() == -signal.SIGKILL
    assert command(tmp_path)[0] == 0


@pytest.mark.heavy
def test_a_folder_removed_under_a_run_does_not_come_back_half(command, whole, tmp_path, monkeypatch):
    folder, append = tmp_path / whole.name, Store.append

    def taken_away(store, record):
        if store.made == 2:
            shutil.rmtree(folder)
        append(store, record)

    monkeypatch.setattr(Store, "append", taken_away)
    stopped(command(tmp_path), f"{folder / RECORDS} was moved or removed while kvbench was writing it")
    assert not folder.exists()
    monkeypatch.undo()
    assert command(tmp_path)[0] == 0
    assert outcomes(folder) == outcomes(whole)


@pytest.mark.parametrize("damage", ["nul", "missing"])
def test_a_damaged_or_missing_manifest_stops_no_run_and_is_told(damage, command, whole, tmp_path):
    folder = tmp_path / whole.name
    shutil.copytree(whole, folder)
    (path,) = (folder / "manifests").glob("*.json")
    size = path.stat().st_size
    if damage == "missing":
        shutil.rmtree(path.parent)
    else:
        path.write_bytes(path.read_bytes()[: size // 2] + b"\0" * (size - size // 2))
    code, told = command(tmp_path)
    assert code == 0 and "6 of 6 records already exist" in told and "Traceback" not in told
    (unknown,) = [line for line in told.splitlines() if line.startswith("no manifest of run")]
    assert f"6 records in {folder}" in unknown
    assert (f"{path} is damaged" in told) == (damage != "missing")
    frame, findings = gather(tmp_path)
    assert len(frame) == 6 and frame["git"].isna().all()
    assert {(finding.kind, finding.wrong) for finding in findings} == {("manifest", True)}


@pytest.mark.heavy
def test_a_clock_that_jumps_or_stands_still_changes_nothing_but_dates(command, whole, tmp_path, monkeypatch):
    clock = itertools.cycle(2 * ["2038-01-19T03:14:08+00:00"] + 2 * ["1970-01-01T00:00:00+00:00"])
    seconds = itertools.count(10**10, -(10**6))
    monkeypatch.setattr(main, "now", lambda: next(clock))
    monkeypatch.setattr(run_manifest, "now", lambda: next(clock))
    monkeypatch.setattr(time, "time", lambda: float(next(seconds)))
    for method in ("full", "snapkv", "h2o", "full"):  # two runs each begin in the same second, two before the first
        assert command(tmp_path, f"method={method}", "limit=1")[0] == 0
    folder = tmp_path / whole.name
    found = manifests(folder)
    assert len({manifest["run"] for manifest in found}) == 4
    assert sorted(manifest["records"] for manifest in found) == [0, 1, 1, 1]
    assert any(manifest["ended"] < manifest["started"] for manifest in found)
    assert all(0 < manifest["wall_seconds"] < 600 for manifest in found)
    records = load(tmp_path)
    assert (records.filter(like="_seconds") >= 0).all(axis=None)
    assert records["started"].notna().all() and records["run"].nunique() == 3
    assert len(set(map(str, outcomes(folder))) & set(map(str, outcomes(whole)))) == 2


def test_what_a_run_was_made_with_stands_beside_its_records(whole):
    records = load(whole)
    (manifest,) = manifests(whole)
    assert records["folder"].unique().tolist() == [str(whole)]
    assert records[list(PROVENANCE)].drop(columns="git").notna().all(axis=None)  # git: None outside a checkout
    first = records.iloc[0]
    assert first["data_sha256"] == manifest["data_sha256"]
    assert first["processor"] == manifest["hardware"]["cpu"]
    assert (first["dtype"], first["device"], first["chat_template"]) == ("torch.float32", "cpu", "auto")
    assert check(records) == []


@pytest.mark.heavy
def test_records_made_again_elsewhere_under_another_split_are_told(command, whole, tmp_path):
    """As when one run is started with two numbers of shards at once."""
    folder = tmp_path / whole.name
    shutil.copytree(whole, folder)
    lines = (folder / RECORDS).read_bytes().splitlines(keepends=True)
    (folder / records_name("0-of-2")).write_bytes(lines[1] + lines[4])
    code, told = command(tmp_path)
    assert code == 0
    assert f"2 records with the same outcome in {folder / records_name('0-of-2')} and {folder / RECORDS}" in told
    other = parse(lines[1]) | {"prediction": "something else"}
    (folder / records_name("0-of-2")).write_bytes(to_line(other))
    before = (folder / "table.md").stat().st_mtime_ns
    stopped(command(tmp_path), "1 record with different outcomes")
    assert (folder / "table.md").stat().st_mtime_ns == before


@pytest.mark.parametrize("cache", ["/dev/null/cache", "/proc/cache"])
def test_the_memory_of_hashes_only_saves_time(cache, tmp_path, monkeypatch):
    path = tmp_path / "weights"
    path.write_bytes(b"kvbench")
    value = hashlib.sha256(b"kvbench").hexdigest()
    monkeypatch.setenv("KVBENCH_CACHE", cache)
    assert file_hash(path) == value
    monkeypatch.setenv("KVBENCH_CACHE", str(tmp_path / "cache"))
    assert file_hash(path) == value
    (memory,) = (tmp_path / "cache" / "hashes").iterdir()
    for damage in ("", "\0" * 64, value[:30]):
        memory.write_text(damage)
        assert file_hash(path) == value == memory.read_text()


def test_an_embedded_model_that_finds_no_room_is_told(command, tmp_path, monkeypatch):
    monkeypatch.setenv("KVBENCH_CACHE", "/dev/null/cache")
    stopped(command(tmp_path, "model.path=null"), "cannot write the converted model to /dev/null/cache")
