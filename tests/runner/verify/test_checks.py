"""Forgeries of a folder: keys and checksums are made again, so that only what the folder claims can give them away."""

import functools
import json
import shutil

import pytest
from transformers import AutoTokenizer

from kvbench.benchmarks.niah import single_needle
from kvbench.methods import WindowAttention
from kvbench.metrics.versions import VERSIONS
from kvbench.records.manifest import read_manifests
from kvbench.records.samples import SAMPLES
from kvbench.records.schema.manifest import Manifest
from kvbench.records.schema.method import MethodRecord
from kvbench.records.store import RECORDS
from kvbench.runner.verify import checks, limits, requested
from kvbench.runner.verify.check_files import files_are_whole
from kvbench.runner.verify.check_runs import runs_agree
from kvbench.runner.verify.check_scores import scores_fit
from kvbench.runner.verify.folder import read
from kvbench.runner.verify.materials import materials
from kvbench.runner.verify.verdict import Verdict
from tests.support.fake_engine import MODEL, FakeEngine
from tests.support.forged import Forged
from tests.support.forgeries_fields import FORGERIES, LEFT_OUT
from tests.support.runs import arguments, run

pytestmark = pytest.mark.heavy


@functools.cache
def _materials(manifest: str, places: str):
    return materials(json.loads(manifest), json.loads(places))


@functools.cache
def _tokenizer(folder):
    return AutoTokenizer.from_pretrained(folder)


@pytest.fixture
def verdicts(monkeypatch, tiny_folder):
    """Verdicts by check; the samples of one manifest are made once for all tests."""
    monkeypatch.setattr(checks, "materials", lambda *given: _materials(*map(json.dumps, given)))
    places = {"model.path": str(tiny_folder)}

    def verify(folder, places=places):
        return {check.name: check.verdict for check in checks.verify(folder, places)}

    return verify


def test_an_honest_folder_has_nothing_wrong_and_its_scores_keys_samples_and_answers_proven(undisturbed, verdicts):
    found = verdicts(undisturbed)
    assert Verdict.WRONG not in found.values()
    proven = {name for name, verdict in found.items() if verdict is Verdict.PROVEN}
    assert proven >= {"files", "keys", "samples", "scores", "answers", "model"}


def test_records_of_an_earlier_version_of_a_method_are_not_wrong_but_other_hashes_are(
    undisturbed, tmp_path, monkeypatch
):
    monkeypatch.setattr(WindowAttention, "version", WindowAttention.version + 1)
    requested._requested.cache_clear()
    found = runs_agree(read(undisturbed))
    assert found.verdict is Verdict.UNPROVEN
    assert any("its methods have other versions here" in note for note in found.notes)
    folder = shutil.copytree(undisturbed, tmp_path / "run")
    (path,) = (folder / "manifests").iterdir()
    manifest = json.loads(path.read_text())
    path.write_text(json.dumps(manifest | {"requested": manifest["requested"][::-1]}))
    assert runs_agree(read(folder)).verdict is Verdict.WRONG
    monkeypatch.undo()
    requested._requested.cache_clear()


def test_scores_of_an_earlier_version_of_a_metric_are_unproven_where_they_are_others(undisturbed, monkeypatch):
    """They were called wrong, which kept the folder from leaderboards."""
    honest = read(undisturbed)
    monkeypatch.setattr(single_needle, "leading_digits", lambda number, prediction: 0.875)
    assert scores_fit(honest).verdict is Verdict.WRONG
    monkeypatch.setitem(VERSIONS, "needle", VERSIONS["needle"] + 1)
    found = scores_fit(honest)
    assert found.verdict is Verdict.UNPROVEN
    assert f"scored by version {VERSIONS['needle'] - 1} of needle, which here is {VERSIONS['needle']}" in found.notes[0]


def test_a_score_that_rounding_put_above_1_is_1_as_in_its_record(undisturbed, tiny_folder, tmp_path, monkeypatch):
    forged = Forged(undisturbed, tmp_path / "run", _tokenizer(tiny_folder))
    for record in forged.records:
        record["scores"] |= {name: 1.0 for name in record["scores"] if name != "exact"}
    monkeypatch.setattr(single_needle, "leading_digits", lambda number, prediction: 1.0000001)
    assert scores_fit(read(forged.seal(True))).verdict is Verdict.PROVEN


def test_records_from_before_the_benchmark_named_units_are_unproven(undisturbed, tiny_folder, tmp_path, verdicts):
    forged = Forged(undisturbed, tmp_path / "run", _tokenizer(tiny_folder))
    for record in forged.records:
        del record["unit"]
    folder = forged.seal(True)
    assert verdicts(folder)["samples"] is Verdict.UNPROVEN
    (note,) = next(
        check.notes for check in checks.verify(folder, {"model.path": str(tiny_folder)}) if check.name == "samples"
    )
    assert note.endswith(f" and {len(forged.records) - 1} more: no unit, so that intervals draw each sample alone")


def test_a_folder_must_have_all_fields_that_every_run_writes(undisturbed):
    (manifest,) = read_manifests(undisturbed)[0].values()
    of_this_run = (
        "command host pid kernels sdpa sdpa_decode slurm checkpoint_dtype reads_alike ended records wall_seconds"
    )
    assert manifest.keys() - Manifest.always() == {*of_this_run.split()} and manifest.keys() > Manifest.always()
    of_needles = {"task", "unit", "length", "depth", "seed", "kept_positions"}
    for record in map(json.loads, (undisturbed / RECORDS).read_text(encoding="utf-8").splitlines()):
        assert record.keys() - MethodRecord.always() == of_needles and record.keys() > MethodRecord.always()


def test_lines_of_samples_that_are_damaged_or_second_ones_are_counted(undisturbed, tmp_path):
    folder = shutil.copytree(undisturbed, tmp_path / "run")
    with (folder / SAMPLES).open("r+", encoding="utf-8") as file:
        file.write(file.readlines()[0] + "no row\n[]\n")
    found = files_are_whole(read(folder))
    assert found.verdict is Verdict.WRONG
    assert [note for note in found.notes if note.startswith("samples.jsonl has 3 line(s)")]


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forgery_is_found(name, undisturbed, tiny_folder, tmp_path, verdicts):
    forge, check, keys = FORGERIES[name]
    forged = Forged(undisturbed, tmp_path / "run", _tokenizer(tiny_folder))
    forge(forged)
    folder = forged.seal(keys)
    if name == "records_without_a_run":
        (folder / "manifests" / "nowhere.json").unlink()
    assert verdicts(folder)[check] is Verdict.WRONG


@pytest.mark.parametrize("name", LEFT_OUT)
def test_a_check_without_something_to_compare_is_unproven(
    name, undisturbed, tiny_folder, tmp_path, verdicts, monkeypatch
):
    monkeypatch.setattr(limits, "TEXT", 10**6)  # a billion seeds are as many as a hundred, and refused sooner
    forge, check = LEFT_OUT[name]
    forged = Forged(undisturbed, tmp_path / "run", _tokenizer(tiny_folder))
    forge(forged)
    assert verdicts(forged.seal())[check] is Verdict.UNPROVEN


def test_there_are_fifty_forgeries():
    assert len(FORGERIES) >= 50


def test_a_folder_cannot_have_code_imported(undisturbed, tiny_folder, tmp_path, verdicts):
    forged = Forged(undisturbed, tmp_path / "run", _tokenizer(tiny_folder))
    forged.manifest["benchmark"]["_target_"] = forged.manifest["config"]["benchmark"]["_target_"] = "os.system"
    forged.manifest["config"]["method"]["snapkv"]["scoring"]["_target_"] = "os.system"
    found = verdicts(forged.seal())
    assert {found[name] for name in ("scores", "samples")} == {Verdict.UNPROVEN}


def test_what_is_not_here_is_unproven_and_not_wrong(undisturbed, tiny_folder, tmp_path, verdicts):
    """Another machine has neither the model's folder nor its tokenizer."""
    forged = Forged(undisturbed, tmp_path / "run", _tokenizer(tiny_folder))
    forged.manifest["config"]["model"]["path"] = str(tmp_path / "gone")
    found = verdicts(forged.seal(), {})
    assert {found[name] for name in ("model", "samples", "answers")} == {Verdict.UNPROVEN}
    assert found["scores"] is Verdict.PROVEN and Verdict.WRONG not in found.values()


def test_a_folder_of_probes_has_nothing_wrong(tiny_folder, tmp_path, verdicts):
    given = (f"model.path={tiny_folder}", "model.shape=null", "model.max_length=4096", f"output_dir={tmp_path}")
    folder = run(*given, "benchmark.lengths=[320]", "benchmark.depths=[50]", "probe=lazy_mass")
    assert Verdict.WRONG not in verdicts(folder).values()


def test_a_run_of_an_engine_has_nothing_wrong_but_settings_that_it_did_not_request(tiny_folder, tmp_path, verdicts):
    first = [one for one in arguments(tiny_folder, tmp_path) if not one.startswith(("method=", "ratio="))]
    with FakeEngine().running() as url:
        folder = run(*first, "engine=openai", f"engine.url={url}", f"engine.served_model={MODEL}", "engine.label=one")
    assert Verdict.WRONG not in verdicts(folder).values()
    (path,) = (folder / "manifests").iterdir()
    manifest = json.loads(path.read_text(encoding="utf-8"))
    manifest["config"]["engine"]["label"] = "another"
    path.write_text(json.dumps(manifest), encoding="utf-8")
    assert verdicts(folder)["manifests"] is Verdict.WRONG
    manifest["config"]["engine"]["_target_"] = "shutil.rmtree"  # looked up in a list, never imported
    path.write_text(json.dumps(manifest), encoding="utf-8")
    assert verdicts(folder)["manifests"] is not Verdict.PROVEN
