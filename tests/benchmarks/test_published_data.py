"""Files of a data set: from a folder, from the hub's cache, and what is said where they cannot be had."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import constants

from kvbench.benchmarks.published_data import DataSet, select
from kvbench.errors import UserError
from tests.support.servers import QuietHandler, serving

REVISION = "0123456789012345678901234567890123456789"
WANTED = {"one": ["data/one.json", "one-*.parquet"], "two": ["two.json"]}


class FakeHub:
    """Answers as the hub does for one data set; `asked` has the paths requested, `sent` the files downloaded."""

    def __init__(self, repository: str, revision: str, files: dict[str, bytes]):
        self.repository, self.revision, self.files = repository, revision, files
        self.asked: list[str] = []
        self.sent: list[str] = []

    def handler(self) -> type[QuietHandler]:
        hub = self

        class Handler(QuietHandler):
            def do_GET(self, send: bool = True):
                path = self.path.partition("?")[0]
                hub.asked.append(path)
                body, name = hub.body(path)
                self.send_response(404 if body is None else 200)
                self.send_header("Content-Length", str(len(body or b"")))
                self.send_header("X-Repo-Commit", hub.revision)
                self.send_header("ETag", f'"{hashlib.sha1(body or b"").hexdigest()}"')
                self.end_headers()
                if send and body is not None:
                    hub.sent += [name] if name else []  # before the other side has it and looks here
                    self.wfile.write(body)

            def do_HEAD(self):
                self.do_GET(send=False)

        return Handler

    def body(self, path: str) -> tuple[bytes | None, str]:
        """What a request is answered with, and the file that it is for."""
        name = path.removeprefix(f"/datasets/{self.repository}/resolve/{self.revision}/")
        if name in self.files:
            return self.files[name], name
        api = f"/api/datasets/{self.repository}"
        if path == f"{api}/tree/{self.revision}":
            sizes = [(name, len(data), hashlib.sha1(data).hexdigest()) for name, data in self.files.items()]
            rows = [{"type": "file", "path": name, "size": size, "oid": oid} for name, size, oid in sizes]
            return json.dumps(rows).encode(), ""
        if path == f"{api}/revision/{self.revision}":
            files = [{"rfilename": name} for name in self.files]
            return json.dumps({"id": self.repository, "sha": self.revision, "siblings": files}).encode(), ""
        return None, ""


@pytest.fixture
def hub(tmp_path, monkeypatch) -> Iterator[FakeHub]:
    """A hub with three files of a data set, and an empty cache."""
    files = {"data/one.json": b"[1]", "two.json": b"[2]", "README.md": b"# Data"}
    hub = FakeHub("someone/data", REVISION, files)
    with serving(hub.handler()) as address:
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "ENDPOINT", address)
        monkeypatch.setattr(
            constants, "HUGGINGFACE_CO_URL_TEMPLATE", address + "/{repo_id}/resolve/{revision}/{filename}"
        )
        yield hub


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


def test_only_the_wanted_files_are_downloaded_and_only_once(hub, monkeypatch):
    data = DataSet("someone/data", REVISION)
    (one,) = data.files({"one": WANTED["one"]})["one"]
    assert one.read_bytes() == b"[1]" and hub.sent == ["data/one.json"]
    found = data.files(WANTED)
    assert [paths[0].read_bytes() for paths in found.values()] == [b"[1]", b"[2]"]
    assert hub.sent == ["data/one.json", "two.json"]
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert data.files(WANTED) == found
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    hub.asked.clear()
    assert data.files(WANTED) == found and hub.asked == []


def test_a_file_that_the_data_set_lacks_is_named(hub):
    with pytest.raises(UserError, match=r"has no file of three \(3\.json\): it is in .* someone/data at 0123"):
        DataSet("someone/data", REVISION).files({**WANTED, "three": ["3.json"]})


def test_an_unknown_data_set_is_one_line(hub):
    with pytest.raises(UserError, match=r"nobody/data could not be fetched at 01.* benchmark.data_dir=FOLDER"):
        DataSet("nobody/data", REVISION).files(WANTED)


@pytest.mark.parametrize("offline", [True, False], ids=["offline mode", "no network"])
def test_without_the_hub_the_error_names_data_dir(hub, monkeypatch, offline):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", offline)
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")  # nothing listens there
    with pytest.raises(UserError, match=r"someone/data could not be fetched at 01.* benchmark.data_dir=FOLDER"):
        DataSet("someone/data", REVISION).files(WANTED)
    assert hub.asked == []


def test_many_missing_files_are_counted(tmp_path):
    with pytest.raises(UserError, match=r"has no file of a, b, c, d, e, f, g, h and 2 more \(a\.json\)"):
        DataSet("someone/data", "main", str(tmp_path)).files({name: [f"{name}.json"] for name in "abcdefghij"})


def test_names_of_groups_and_members_are_chosen_once_in_order():
    allowed = {"all": ("a", "b", "c"), "a": ("a",), "b": ("b",)}
    assert select(["b", "all"], allowed, "letter") == ["b", "a", "c"]
    with pytest.raises(UserError, match="unknown letter 'x'"):
        select(["a", "x"], allowed, "letter")
