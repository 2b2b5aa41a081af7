"""Files of a data set: from a folder, from the hub's cache, and what is said where they cannot be had."""

from pathlib import Path

import pytest

from kvbench.benchmarks.published_data import DataSet, select
from kvbench.errors import UserError

REVISION = "0123456789012345678901234567890123456789"
WANTED = {"one": ["data/one.json", "one-*.parquet"], "two": ["two.json"]}


@pytest.fixture
def snapshot(tmp_path, monkeypatch) -> Path:
    """The folder of a revision in the hub's cache, as huggingface_hub lays it out."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    folder = tmp_path / "datasets--someone--data" / "snapshots" / REVISION
    folder.mkdir(parents=True)
    return folder


def fill(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("{}")


def test_the_first_layout_that_fits_counts_and_its_files_are_in_order(tmp_path):
    fill(tmp_path, "one-2.parquet", "one-1.parquet", "two.json", "three.json")
    found = DataSet("someone/data", REVISION, str(tmp_path)).files(WANTED)
    assert {name: [path.name for path in paths] for name, paths in found.items()} == {
        "one": ["one-1.parquet", "one-2.parquet"],
        "two": ["two.json"],
    }
    fill(tmp_path, "data/one.json")
    assert DataSet("someone/data", REVISION, str(tmp_path)).files(WANTED)["one"] == [tmp_path / "data" / "one.json"]


def test_a_cached_revision_needs_no_network(snapshot, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")  # nothing listens there
    fill(snapshot, "data/one.json", "two.json")
    assert DataSet("someone/data", REVISION).files(WANTED)["two"] == [snapshot / "two.json"]


def test_only_what_the_cache_lacks_is_downloaded(snapshot, monkeypatch):
    fill(snapshot, "two.json")

    def download(repo_id, repo_type, revision, local_files_only=False, allow_patterns=None):
        if not local_files_only:
            assert allow_patterns == WANTED["one"]
            fill(snapshot, "data/one.json")
        return str(snapshot)

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    monkeypatch.setattr("huggingface_hub.HfApi.repo_info", lambda *args, **options: None)
    found = DataSet("someone/data", REVISION).files(WANTED)
    assert [paths[0].name for paths in found.values()] == ["one.json", "two.json"]


@pytest.mark.parametrize("offline", [True, False], ids=["offline mode", "no network"])
def test_without_the_hub_the_error_names_data_dir(snapshot, monkeypatch, offline):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", offline)
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(
        UserError, match=r"someone/data could not be fetched at 0123.* benchmark.data_dir=FOLDER"
    ) as told:
        DataSet("someone/data", REVISION).files(WANTED)
    assert "\n" not in str(told.value)


def test_many_missing_files_are_counted(tmp_path):
    with pytest.raises(UserError, match=r"has no file of a, b, c, d, e, f, g, h and 2 more \(a\.json\)"):
        DataSet("someone/data", "main", str(tmp_path)).files({name: [f"{name}.json"] for name in "abcdefghij"})


def test_names_of_groups_and_members_are_chosen_once_in_order():
    allowed = {"all": ("a", "b", "c"), "a": ("a",), "b": ("b",)}
    assert select(["b", "all"], allowed, "letter") == ["b", "a", "c"]
    with pytest.raises(UserError, match="unknown letter 'x'"):
        select(["a", "x"], allowed, "letter")
