"""Published files: mirrors in turn, each fault a reason in one line, nothing in the cache that is not verified."""

import hashlib
from pathlib import Path

import pytest
from huggingface_hub import constants

from kvbench.errors import UserError
from kvbench.utils.download import fetched
from kvbench.utils.files import cache_root
from tests.support.servers import QuietHandler, dripping, serving

pytestmark = pytest.mark.heavy

BODY = b"published\r\n" + bytes(range(256))
SHA256 = hashlib.sha256(BODY).hexdigest()


class Answers(QuietHandler):
    """/good and /other are files, /short ends early, /garbage is no HTTP, and nothing else exists."""

    def do_GET(self):
        if self.path == "/garbage":
            self.wfile.write(b"nonsense\r\n\r\n")
            return
        body = {"/good": BODY, "/other": b"another", "/short": BODY[:-1]}.get(self.path)
        if body is None:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(BODY) if self.path == "/short" else len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def server(tmp_path, monkeypatch):
    monkeypatch.setenv("KVBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)  # which tests are
    with serving(Answers) as address:
        yield address


@pytest.mark.parametrize("fault", ["/missing", "/short", "/garbage", "/other"])
def test_a_mirror_that_fails_in_any_way_gives_place_to_the_next(fault, server):
    path = fetched("file.bin", {server + fault: SHA256, server + "/good": SHA256}, "")
    assert path.read_bytes() == BODY
    assert [file.name for file in path.parent.iterdir()] == ["file.bin"]


def test_mirrors_may_hold_different_files(server):
    other = hashlib.sha256(b"another").hexdigest()
    path = fetched("file.bin", {server + "/missing": SHA256, server + "/other": other}, "")
    assert path.read_bytes() == b"another"
    assert fetched("file.bin", {"http://127.0.0.1:1/": SHA256, "http://127.0.0.1:1/2": other}, "") == path


def test_offline_the_cache_alone_is_read(server, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    published = {server + "/good": SHA256}
    with pytest.raises(
        UserError, match=r"^file\.bin is not in the cache \(.*\), and nothing is .* offline: name a copy$"
    ):
        fetched("file.bin", published, "name a copy")
    assert not (cache_root() / "downloads").exists()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    path = fetched("file.bin", published, "")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert fetched("file.bin", published, "") == path


def test_where_no_mirror_works_one_line_gives_each_reason_and_the_alternative(server):
    urls = [server + fault for fault in ("/missing", "/short", "/garbage", "/other")]
    with pytest.raises(UserError, match=r"^file\.bin could not be fetched") as error:
        fetched("file.bin", dict.fromkeys(urls, SHA256), "name a copy")
    line = str(error.value)
    assert all(url in line for url in urls) and line.endswith(": name a copy")
    assert "404" in line and "IncompleteRead" in line and "nonsense" in line and "gives another file" in line
    assert not (cache_root() / "downloads").exists()


def test_a_cache_that_cannot_be_written_is_one_line(server, tmp_path):
    (tmp_path / "cache").write_text("a file where the folder should be")
    with pytest.raises(UserError, match=r"^cannot write .*file\.bin: .* \(KVBENCH_CACHE=FOLDER moves the cache\)$"):
        fetched("file.bin", {server + "/good": SHA256}, "")


def test_the_cache_is_where_its_variables_say(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KVBENCH_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert cache_root() == tmp_path / ".cache" / "kvbench"
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    assert cache_root() == tmp_path / ".cache" / "kvbench"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_root() == tmp_path / "xdg" / "kvbench"
    monkeypatch.setenv("KVBENCH_CACHE", "here")
    assert cache_root() == Path("here")


def test_a_mirror_that_sends_a_byte_now_and_then_gives_place_to_the_next(server, monkeypatch):
    monkeypatch.setattr("kvbench.utils.download.DEADLINE", 0.5)
    with dripping() as address, pytest.raises(UserError, match=r"no whole answer within 0\.5 seconds.*: bring it"):
        fetched("file.bin", {address: SHA256}, "bring it")
