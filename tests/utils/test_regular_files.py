"""Files that never end or never begin are refused at once: every reader of a file opens it the same way."""

import os
import socket
from pathlib import Path

import pytest

from kvbench.errors import UserError
from kvbench.methods.heads.head_scores import read_head_scores
from kvbench.methods.kivi.layer_bits import read_layer_bits
from kvbench.records.manifest import read_manifests
from kvbench.records.samples import read_samples
from kvbench.records.store import Store, read_records
from kvbench.utils.files import write_atomically
from kvbench.utils.hashing import file_hash
from kvbench.utils.jsonl import read_rows
from kvbench.utils.regular_files import is_special, open_regular, read_bytes, read_text
from kvbench.utils.row_files import read_file
from kvbench.utils.yaml_files import read_yaml


@pytest.fixture
def pipe(tmp_path):
    """Name → a pipe in a folder, which nobody writes to."""

    def make(name: str) -> Path:
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        os.mkfifo(tmp_path / name)
        return tmp_path / name

    return make


def test_a_regular_file_is_read_and_a_link_to_one(tmp_path):
    (tmp_path / "file").write_bytes(b"a\r\nb\xc3\xbc")
    (tmp_path / "link").symlink_to("file")
    assert read_bytes(tmp_path / "link") == b"a\r\nb\xc3\xbc"
    assert read_text(tmp_path / "file") == (tmp_path / "file").read_text(encoding="utf-8") == "a\nbü"
    with pytest.raises(OSError, match="larger than 3 bytes"):
        read_bytes(tmp_path / "file", limit=3)


def test_pipes_sockets_and_devices_are_refused_and_a_folder_says_so(pipe, tmp_path):
    with socket.socket(socket.AF_UNIX) as server:
        os.chdir(tmp_path) if len(str(tmp_path)) > 90 else None  # a socket's path is short
        server.bind(str(tmp_path / "s") if len(str(tmp_path)) <= 90 else "s")
        for path in (pipe("pipe"), Path("/dev/zero")):
            with pytest.raises(OSError, match="not a regular file but a pipe, a socket or a device"):
                open_regular(path)
            assert is_special(path)
        assert is_special(tmp_path / "s")
        with pytest.raises(OSError):
            open_regular(tmp_path / "s")
    with pytest.raises(IsADirectoryError):
        open_regular(tmp_path)
    assert not is_special(tmp_path) and not is_special(tmp_path / "nowhere")


READERS = {
    "rows.jsonl": lambda path: read_rows(path, {}),
    "rows.json": lambda path: read_file(path, {}),
    "rows.parquet": lambda path: read_file(path, {}),
    "scores.json": lambda path: read_head_scores(str(path)),
    "scores.pt": lambda path: read_head_scores(str(path)),
    "bits.yaml": lambda path: read_layer_bits(str(path)),
    "any.yaml": read_yaml,
    "records.jsonl": read_records,
    "samples.jsonl": lambda path: read_samples(path.parent),
}


@pytest.mark.parametrize("name", READERS)
def test_a_data_file_that_is_a_pipe_is_one_line(name, pipe):
    with pytest.raises(UserError, match="not a regular file") as error:
        READERS[name](pipe(name))
    assert name in str(error.value)


def test_a_hash_waits_for_no_pipe(pipe):
    with pytest.raises(OSError, match="not a regular file"):
        file_hash(pipe("data"))


def test_a_manifest_that_is_a_pipe_is_a_damaged_one(pipe, tmp_path):
    path = pipe("manifests/a.json")
    manifests, damaged = read_manifests(tmp_path)
    assert manifests == {} and [*damaged] == [path]


@pytest.mark.parametrize("name", ["records.jsonl", "records.1-of-2.jsonl", ".lock"])
def test_a_store_with_a_pipe_in_its_folder_is_refused(name, pipe, tmp_path):
    pipe(name)
    with pytest.raises(UserError, match="not a regular file"):
        Store(tmp_path)


def test_a_pipe_with_the_name_of_work_in_progress_does_not_stop_a_write(pipe, tmp_path):
    pipe(".x.1.kvbench-work")
    write_atomically(tmp_path / "y", "text")
    assert (tmp_path / "y").read_text() == "text"
