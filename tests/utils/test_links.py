"""Links in folders of data: what lies outside of a folder is not read from it."""

import os
from pathlib import Path

import pytest

from kvbench.benchmarks import haystack
from kvbench.benchmarks.longbench import data as longbench
from kvbench.benchmarks.math_sets import rows_of
from kvbench.benchmarks.nolima.benchmark import NoLiMa
from kvbench.benchmarks.published_data import DataSet
from kvbench.benchmarks.ruler import essays, files
from kvbench.errors import UserError
from kvbench.evaluation import rescore
from kvbench.utils.links import held

# File of a folder → what reads it.
READERS = {
    "a haystack": ("b.txt", lambda folder: haystack.from_folder(str(folder), 0)),
    "RULER's essays": ("b.txt", lambda folder: essays.Essays(str(folder), "simple", 0)),
    "RULER's official essays": ("PaulGrahamEssays.json", lambda folder: essays.Essays(str(folder), "simple", 0)),
    "RULER's samples": (
        "niah_single_1/validation.jsonl",
        lambda folder: files.find(str(folder), [4096], ["niah_single_1"], all_required=True),
    ),
    "LongBench": ("trec.jsonl", lambda folder: longbench.read(folder, ["trec"])),
    "a data set": ("x.jsonl", lambda folder: DataSet("a/b", "main", str(folder)).files({"x": ["*.jsonl"]})),
    "problems": ("math.jsonl", lambda folder: rows_of("math500", str(folder))),
    "NoLiMa": (
        "haystack/rand_shuffle/b.txt",
        lambda folder: NoLiMa(data_dir=str(folder), lengths=[1000], depths=[0], needle_set="needle_set"),
    ),
    "predictions": ("trec.jsonl", lambda folder: rescore.find(folder, extended=False)),
    "official scores": ("result.json", rescore.published),
}


@pytest.mark.parametrize("file, read", READERS.values(), ids=READERS)
def test_a_link_to_a_file_outside_of_a_folder_is_one_line(file, read, tmp_path):
    (tmp_path / "secret").write_text('{"secret": 1}\n')
    folder = tmp_path / "data"
    (folder / file).parent.mkdir(parents=True)
    (folder / "needlesets").mkdir(exist_ok=True)
    (folder / "needlesets" / "needle_set.json").write_text("[]")
    (folder / file).symlink_to(os.path.relpath(tmp_path / "secret", (folder / file).parent))
    with pytest.raises(UserError, match="is a link to a file outside of") as error:
        read(folder)
    assert str(error.value).startswith(f"{folder / file} ")


def test_links_within_a_folder_a_folder_that_is_one_and_the_hubs_cache_are_followed(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "a.txt").write_text("One text. ")
    (folder / "b.txt").symlink_to("a.txt")
    (tmp_path / "link").symlink_to(folder)
    assert [path.name for path in haystack.files_of(str(tmp_path / "link"))] == ["a.txt", "b.txt"]
    snapshot = tmp_path / "datasets--a--b" / "snapshots" / "1f" / "deep"
    snapshot.mkdir(parents=True)
    (tmp_path / "datasets--a--b" / "blobs").mkdir()
    (tmp_path / "datasets--a--b" / "blobs" / "2e").write_text("x")
    (snapshot / "x.jsonl").symlink_to("../../../blobs/2e")
    assert held(snapshot / "x.jsonl", snapshot.parent).is_file()
    (tmp_path / "datasets--a--b" / "blobs" / "3d").symlink_to(tmp_path / "data" / "a.txt")
    (snapshot / "y.jsonl").symlink_to("../../../blobs/3d")
    with pytest.raises(UserError, match="outside"):
        held(snapshot / "y.jsonl", snapshot.parent)


def test_a_file_that_is_not_there_is_for_its_reader_to_report(tmp_path):
    assert held(Path(tmp_path / "x"), tmp_path) == tmp_path / "x"
