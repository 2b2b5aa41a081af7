"""Versions in keys and manifests: what was corrected is computed again, and what was not is found again."""

import json

import pytest

from kvbench.benchmarks.niah.single_needle import NeedleInAHaystack
from kvbench.methods import Dense, WindowAttention
from kvbench.metrics import versions
from kvbench.records import load
from kvbench.records.provenance import provenance
from tests.support.runs import arguments, manifests, run

# Whole runs, some of which leave records of two versions in one folder.
pytestmark = [pytest.mark.heavy, pytest.mark.filterwarnings("ignore:.*with several rows")]


@pytest.fixture
def small(tiny_folder, tmp_path, monkeypatch):
    """Run FullKV and SnapKV on one needle, as if its metrics had never changed; the folder."""
    monkeypatch.setitem(versions.VERSIONS, "needle", 1)
    given = arguments(tiny_folder, tmp_path, "method=[full,snapkv]", "ratio=0.2", "benchmark.depths=[50]")
    return lambda: run(*given)


def test_a_manifest_names_the_versions_and_keys_without_new_ones_do_not(small):
    folder = small()
    (manifest,) = manifests(folder)
    settings, benchmark = manifest["versions"]["settings"], manifest["versions"]["benchmark"]
    assert settings == dict.fromkeys(["Dense", "EqualHeads", "Eviction", "FullKV", "Uniform", "WindowAttention"], 1)
    assert benchmark == {"NeedleInAHaystack": 1, "needle": 1}
    assert not load(folder)["parameters"].str.contains("versions").any()


def test_a_part_with_a_new_version_is_computed_again_beside_the_records_of_the_old_one(small, monkeypatch):
    before = load(small())
    monkeypatch.setattr(WindowAttention, "version", 2)
    folder = small()
    after = load(folder)
    assert len(before) == 2 and len(after) == 3 and set(before["key"]) < set(after["key"])
    (new,) = after[~after["key"].isin(before["key"])].to_dict("records")
    assert new["method"] == "snapkv"
    assert json.loads(new["parameters"])["versions"] == {"WindowAttention": 2}
    assert manifests(folder)[-1]["versions"]["settings"]["WindowAttention"] == 2
    assert small() == folder and len(load(folder)) == 3


def test_a_part_that_a_method_has_by_default_counts_too(small, monkeypatch):
    small()
    monkeypatch.setattr(Dense, "version", 2)
    assert len(load(small())) == 4  # FullKV stores in it as well


@pytest.mark.parametrize("what", ["benchmark", "metric"])
def test_a_benchmark_or_metric_with_a_new_version_gets_a_folder_of_its_own(small, monkeypatch, what):
    before = small()
    if what == "benchmark":
        monkeypatch.setattr(NeedleInAHaystack, "version", 2)
    else:
        monkeypatch.setitem(versions.VERSIONS, "needle", 2)
    after = small()
    assert after != before and len(load(after)) == 2
    assert not set(load(before)["key"]) & set(load(after)["key"])
    (manifest,) = manifests(after)
    name = {"benchmark": "NeedleInAHaystack", "metric": "needle"}[what]
    assert json.loads(provenance(manifest)["versions"]) == {"versions": {name: 2}}


def test_records_from_before_there_were_versions_have_version_1(small):
    folder = small()
    (manifest,) = manifests(folder)
    old = {key: value for key, value in manifest.items() if key != "versions"}
    assert provenance(old) == provenance(manifest)
