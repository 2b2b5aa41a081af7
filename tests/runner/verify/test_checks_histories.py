"""Folders that several runs made, or one that was disturbed: honest ones have nothing wrong, and all of it counts."""

import json
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from kvbench.records.store import RECORDS
from kvbench.report.page.labels import as_requested
from kvbench.runner.verify.check_complete import complete
from kvbench.runner.verify.check_copies import no_copies
from kvbench.runner.verify.check_names import names_fit
from kvbench.runner.verify.check_runs import runs_agree
from kvbench.runner.verify.check_samples import samples_fit
from kvbench.runner.verify.folder import read
from kvbench.runner.verify.materials import materials
from kvbench.runner.verify.verdict import Verdict
from tests.support.runs import arguments, run

FEW = ("method=[full,snapkv]", "ratio=0.2")


def made(tiny_folder: Path, out: Path, *runs: tuple[str, ...]) -> Path:
    """The folder of several runs, one after the other."""
    (folder,) = {run(*arguments(tiny_folder, out, *FEW, *more)) for more in runs}
    return folder


def test_shards_that_another_run_has_taken_over_are_not_missed(tiny_folder, tmp_path):
    folder = made(tiny_folder, tmp_path, ("shards=2", "shard=0"), ())
    assert complete(read(folder)).verdict is Verdict.PLAUSIBLE


def test_a_shard_of_one_method_is_missed_where_another_method_has_it(tiny_folder, tmp_path):
    shards = [("shards=2", f"shard={shard}") for shard in range(2)]
    made(tiny_folder, tmp_path, *(("method=full", *shard) for shard in shards))
    folder = made(tiny_folder, tmp_path, ("method=snapkv", *shards[0]))
    check = complete(read(folder))
    assert check.verdict is Verdict.UNPROVEN and "1 of 2 shards are not there" in check.notes


def test_a_run_that_was_stopped_is_complete_once_a_larger_one_has_finished(tiny_folder, tmp_path):
    folder = made(tiny_folder, tmp_path, ("limit=1",))
    (path,) = (folder / "manifests").iterdir()
    path.write_text(path.read_text().replace('"finished"', '"stopped by SIGINT"'))
    check = complete(read(folder))
    assert check.verdict is Verdict.UNPROVEN and "did not finish (stopped by SIGINT)" in check.notes[0]
    made(tiny_folder, tmp_path, ("method=[full,snapkv,h2o]",))
    assert complete(read(folder)).verdict is Verdict.PLAUSIBLE


def test_samples_that_a_run_has_begun_and_not_made_are_not_left_out_of_those_that_another_finished(
    tiny_folder, tmp_path
):
    folder = made(tiny_folder, tmp_path, ("limit=1",))
    finished, few = {*(folder / "manifests").iterdir()}, (folder / RECORDS).read_bytes()
    made(tiny_folder, tmp_path, ())
    (begun,) = {*(folder / "manifests").iterdir()} - finished
    ended = begun.read_text(encoding="utf-8")
    (folder / RECORDS).write_bytes(few)  # of the second run, which is killed before its first record
    begun.write_text(ended.replace('"finished"', '"running"'), encoding="utf-8")
    manifest = next(iter(read(folder).manifests.values()))
    made_here = materials(manifest, {"model.path": str(tiny_folder)})
    assert made_here.samples and samples_fit(read(folder), made_here).verdict is Verdict.PROVEN
    begun.write_text(ended, encoding="utf-8")
    check = samples_fit(read(folder), made_here)
    assert check.verdict is Verdict.WRONG and "of the benchmark was left out" in check.notes[0]


def test_settings_of_one_name_are_apart_where_runs_chose_other_parameters_or_a_budget_for_a_ratio(
    tiny_folder, tmp_path
):
    choices = [("ratio=1",), ("budget=1",), ("budget=1", "method.keydiff.granularity=layer")]
    given = arguments(tiny_folder, tmp_path, "method=[full,keydiff]", "limit=1")
    (folder,) = {run(*(key for key in given if not key.startswith("ratio")), *choice) for choice in choices}
    packed = read(folder)
    assert len({record["setting"] for record in packed.records}) == 2 and len(packed.records) == 4
    assert names_fit(packed).verdict is not Verdict.WRONG
    assert no_copies(packed).verdict is Verdict.PLAUSIBLE
    labels = as_requested(packed.frame, packed.manifests.values())["label"]
    assert [*labels] == [
        "full",
        "keydiff 1 (granularity=kv_head) (ratio 1)",
        "keydiff 1 (granularity=kv_head) (budget 1)",
        "keydiff 1 (granularity=layer) (budget 1)",
    ]


def test_records_that_were_damaged_and_made_again_are_unproven_and_not_wrong(tiny_folder, tmp_path):
    folder = made(tiny_folder, tmp_path, ())
    lines = (folder / RECORDS).read_bytes().splitlines(keepends=True)
    (folder / RECORDS).write_bytes(b"".join([*lines[:-1], lines[-1][:-50]]))
    made(tiny_folder, tmp_path, ())
    check = runs_agree(read(folder))
    assert check.verdict is Verdict.UNPROVEN
    assert "made 6 records, of which 5 are there: the others were set aside or removed" in check.notes[0]


def test_more_records_than_a_run_made_are_wrong(tiny_folder, tmp_path):
    folder = made(tiny_folder, tmp_path, ())
    changed(folder, records=5, there=1)
    check = runs_agree(read(folder))
    assert check.verdict is Verdict.WRONG and "made 5 records, but 6 name it" in check.notes[0]


def changed(folder: Path, **entries: object) -> None:
    """Other entries in the manifest of a folder's only run."""
    (path,) = (folder / "manifests").iterdir()
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | entries), encoding="utf-8")


def later(text: str, seconds: float) -> str:
    return (datetime.fromisoformat(text) + timedelta(seconds=seconds)).isoformat()


def of_manifest(folder: Path, name: str) -> Any:
    (manifest,) = read(folder).manifests.values()
    return manifest[name]


def test_a_machine_that_slept_during_a_run_makes_it_unproven_and_not_wrong(tiny_folder, tmp_path):
    folder = made(tiny_folder, tmp_path, ())
    changed(folder, ended=later(of_manifest(folder, "ended"), 3600))
    check = runs_agree(read(folder))
    assert check.verdict is Verdict.UNPROVEN and "the clock was set, or the machine slept" in check.notes[0]


def test_a_run_is_named_before_its_samples_are_checked_however_long_that_takes(tiny_folder, tmp_path):
    folder = made(tiny_folder, tmp_path, ())
    assert runs_agree(read(folder)).verdict is Verdict.PLAUSIBLE
    moved = {name: later(of_manifest(folder, name), 300) for name in ("started", "ended")}
    changed(folder, **moved, wall_seconds=310.0)
    assert runs_agree(read(folder)).verdict is Verdict.PLAUSIBLE
    changed(folder, wall_seconds=100.0)  # it was named before its command began
    assert runs_agree(read(folder)).verdict is Verdict.WRONG
