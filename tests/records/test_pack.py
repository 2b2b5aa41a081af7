"""kvbench pack: everything of a run but what names its machine."""

import json
import random
import subprocess
import sys

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kvbench.records import load
from kvbench.records.manifest import read_manifests
from kvbench.records.pack import DROPPED, is_path
from kvbench.records.parquet_records import write_records
from kvbench.records.record_files import read_file
from kvbench.records.store import PACK, RECORDS, read_records
from kvbench.runner.verify.checks import verify
from kvbench.runner.verify.verdict import Verdict
from tests.support.command import kvbench
from tests.support.loaded_records import manifest, record, write

MIXED = [
    record(0, depth=50, scores={"digits": 1.0}),
    record(1, depth="half", scores={"rouge": 0.5}, kept_per_head=[[1, 2], None]),
    record(2, prediction="half a pair \ud83d", big=2**62, whole=1, empty=[], nothing=None),
]


def test_records_of_any_shape_are_read_back_as_they_were(tmp_path):
    write_records(tmp_path / PACK, MIXED)
    records, damaged = read_file(tmp_path / PACK)
    assert records == MIXED and not damaged
    assert [list(one) for one in records] == [list(one) for one in MIXED]
    assert [type(one.get("depth")) for one in records] == [type(one.get("depth")) for one in MIXED]


def test_an_edited_pack_is_found(tmp_path):
    write_records(tmp_path / PACK, [record(0), record(1)])
    frame = pd.read_parquet(tmp_path / PACK)
    frame.loc[0, "prediction"] = "better"
    metadata = pq.read_schema(tmp_path / PACK)
    table = pa.Table.from_pandas(frame, schema=metadata, preserve_index=False).replace_schema_metadata(
        metadata.metadata
    )
    pq.write_table(table, tmp_path / PACK)
    records, damaged = read_file(tmp_path / PACK)
    assert [one["key"] for one in records] == [record(1)["key"]] and len(damaged) == 1


def test_a_pack_names_no_path_machine_or_user_and_says_what_it_leaves_out(tmp_path, capsys):
    config = {
        "model": {"name": "smollm2-135m", "path": "/home/joe/model"},
        "benchmark": {"_target_": "kvbench.benchmarks.LongBench", "data_dir": "/data/secret"},
        "output_dir": "/home/joe/runs",
        "wandb": {"entity": "joes-lab"},
    }
    private = {"host": "node17", "pid": 4, "command": ["kvbench", "/home/joe"], "error": "/home/joe is full"}
    write(
        tmp_path / "run", [record(0)], manifest(config=config, hardware={"cpu": "c", "system": "node17-os"}, **private)
    )
    assert kvbench("pack", str(tmp_path / "run")) in (0, None)
    pack = tmp_path / "run.pack"
    written = b"".join(path.read_bytes() for path in pack.rglob("*") if path.is_file())
    for name in (b"joe", b"node17", b"secret", str(tmp_path).encode()):
        assert name not in written
    told = capsys.readouterr().out
    for name in ("host", "command", "error", "config.model.path", "config.benchmark.data_dir", "kept_positions"):
        assert name in told
    assert load(pack)["key"].tolist() == [record(0)["key"]]


def test_values_of_the_environment_stay_where_they_are_numbers_or_switches(tmp_path, capsys):
    kept = {"OMP_NUM_THREADS": "8", "OMP_PLACES": "{0:4},{4:4}", "MKL_DYNAMIC": "FALSE", "OMP_PROC_BIND": "true"}
    free = {"MKL_NOTE": "joe at node17", "KMP_AFFINITY": "granularity=fine,joe", "OMP_TOKEN": "hf_joe", "MKL_X": ""}
    write(tmp_path / "run", [record(0)], manifest(variables=kept | free))
    assert kvbench("pack", str(tmp_path / "run")) in (0, None)
    (path,) = (tmp_path / "run.pack" / "manifests").iterdir()
    assert json.loads(path.read_text())["variables"] == kept | dict.fromkeys(free, "left out")
    assert b"joe" not in b"".join(path.read_bytes() for path in (tmp_path / "run.pack").rglob("*") if path.is_file())
    told = capsys.readouterr().out
    assert all(f"variables.{name}" in told for name in free) and "OMP_NUM_THREADS" not in told


def test_a_path_in_a_setting_cannot_be_packed(tmp_path, capsys):
    write(tmp_path / "run", [record(0, parameters=json.dumps({"where": "/home/joe/x"}))], manifest())
    assert kvbench("pack", str(tmp_path / "run")) == 2
    assert "'/home/joe/x'" in capsys.readouterr().err
    assert not (tmp_path / "run.pack").exists()


@pytest.mark.parametrize(
    "flags", ["--model /home/joe/x", "-m=~/x -n 4", "--lora a='/home/joe/x'", "--lora a:/home/joe"]
)
def test_a_path_among_an_engines_flags_cannot_be_packed(flags, tmp_path, capsys):
    write(tmp_path / "run", [record(0, parameters=json.dumps({"engine": "openai", "flags": flags}))], manifest())
    assert kvbench("pack", str(tmp_path / "run")) == 2
    assert "which a pack must not" in capsys.readouterr().err


def test_flags_without_a_path_stay(tmp_path):
    flags = "--kv-cache-dtype fp8 --quantization=fp8 --ratio 1/2"
    write(tmp_path / "run", [record(0, parameters=json.dumps({"flags": flags}))], manifest())
    assert kvbench("pack", str(tmp_path / "run")) in (0, None)
    assert flags in load(tmp_path / "run.pack")["parameters"][0]


def test_of_equal_copies_a_pack_has_the_first_and_of_others_none(tmp_path, capsys):
    write(tmp_path / "run", [record(0), record(1)], manifest(), shard=".0-of-2")
    write(tmp_path / "run", [record(1, decode_seconds=9.0)], manifest("r2"), shard=".1-of-2")
    assert kvbench("pack", str(tmp_path / "run")) in (0, None)
    assert load(tmp_path / "run.pack")["decode_seconds"].tolist() == [0.5, 0.5]
    write(tmp_path / "run", [record(1, prediction="another")], manifest(), shard=".1-of-2")
    assert kvbench("pack", str(tmp_path / "run"), "--out", str(tmp_path / "second.pack")) == 2
    assert "with another outcome (prediction): kvbench records" in capsys.readouterr().err.replace("\n", " ")


def test_a_pack_does_not_replace_anything(tmp_path, capsys):
    write(tmp_path / "run", [record(0)], manifest())
    (tmp_path / "run.pack").mkdir()
    assert kvbench("pack", str(tmp_path / "run")) == 2
    assert "exists" in capsys.readouterr().err


@pytest.mark.parametrize("run", ["../../../outside", "{top}/outside", "r" * 300, "a\0b", "r/1", ".."])
def test_the_manifest_of_a_run_with_any_id_is_in_the_pack_and_nowhere_else(run, tmp_path):
    run = run.format(top=tmp_path)
    write(tmp_path / "run", [record(0, run=run)], manifest())
    (path,) = (tmp_path / "run" / "manifests").iterdir()
    path.write_text(json.dumps(manifest() | {"run": run}))
    before = {*tmp_path.rglob("*")}
    assert kvbench("pack", str(tmp_path / "run")) in (0, None)
    pack = tmp_path / "run.pack"
    assert all(new == pack or new.is_relative_to(pack) for new in {*tmp_path.rglob("*")} - before)
    assert [*read_manifests(pack)[0]] == ["left out" if is_path(run) else run]


@pytest.mark.parametrize("text", ["/a", "~/a", "../a", "C:\\a", "D:/a", "file:///a", "\\\\server\\a"])
def test_paths_are_known(text):
    assert is_path(text) and not is_path(f"a {text}")


@pytest.mark.heavy
def test_a_real_runs_pack_loads_as_the_run_and_verifies_as_it(undisturbed, tiny_folder, tmp_path):
    assert kvbench("pack", str(undisturbed), "--out", str(tmp_path / "pack")) in (0, None)
    run, pack = load(undisturbed), load(tmp_path / "pack")
    for name in set(run) - DROPPED - {"folder"}:
        assert run[name].equals(pack[name]), name
    kept = read_records(undisturbed / RECORDS)[0]
    assert read_file(tmp_path / "pack" / PACK)[0] == [
        {k: v for k, v in one.items() if k not in DROPPED} for one in kept
    ]
    frame = pd.read_parquet(tmp_path / "pack" / PACK)
    assert frame["prediction"].tolist() == run["prediction"].tolist()
    checks = {check.name: check.verdict for check in verify(tmp_path / "pack", {"model.path": str(tiny_folder)})}
    assert Verdict.WRONG not in checks.values()
    assert {checks[name] for name in ("keys", "samples", "scores", "answers")} == {Verdict.PROVEN}


@pytest.mark.heavy
def test_datasets_reads_a_pack(tmp_path):
    write_records(tmp_path / PACK, [record(0), record(1)])
    code = (
        "import sys, datasets; "
        "found = datasets.load_dataset('parquet', data_files=sys.argv[1], split='train', cache_dir=sys.argv[2]); "
        "print(found['prediction'][:])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / PACK), str(tmp_path / "cache")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == str([record(i)["prediction"] for i in range(2)])


def test_a_record_with_random_tokens_and_times_takes_less_than_500_bytes(tmp_path):
    """5 MB for 10,000 records: of a model of 30 layers, with answers of 32 tokens and of 80 characters."""
    draw = random.Random(0)
    many = [
        record(
            number,
            tokens=[draw.randrange(50_000) for _ in range(32)],
            prediction="".join(draw.choices("abcdefghijklmnopqrstuvwxyz ", k=80)),
            kept_per_layer=[100.0] * 30,
            nominal_per_layer=[100] * 30,
            prefill_seconds=draw.random(),
            compress_seconds=draw.random(),
            decode_seconds=draw.random(),
            key=f"{draw.getrandbits(64):016x}",
        )
        for number in range(1000)
    ]
    write_records(tmp_path / PACK, many)
    assert (tmp_path / PACK).stat().st_size < 500 * len(many)
