"""A hub that accepts connections and never answers gets one short attempt."""

import socket
import threading
from contextlib import contextmanager

import pytest
from huggingface_hub import constants

from kvbench.errors import UserError
from kvbench.models import ModelSpec, hub, load
from tests.support.servers import QuietHandler, dripping, serving

pytestmark = pytest.mark.heavy

SPEC = ModelSpec(name="far", max_length=512, hub_id="kvbench/far", device="cpu")


@pytest.fixture
def silent_hub(monkeypatch):
    """The connections that a hub which never answers has accepted."""
    connections = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept():
            while True:
                try:
                    connections.append(server.accept()[0])
                except OSError:  # closed
                    return

        threading.Thread(target=accept, daemon=True).start()
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{server.getsockname()[1]}")
        monkeypatch.setattr(hub, "_PATIENCE", 0.2)
        yield connections
        for connection in connections:
            connection.close()


def test_after_one_attempt_without_an_answer_only_the_local_cache_is_read(silent_hub):
    assert hub.hub_options("kvbench/far", "main") == {"revision": "main", "local_files_only": True}
    assert 1 <= len(silent_hub) <= 2  # the client may connect again by itself


def test_loading_from_it_is_one_line(silent_hub):
    told = rf"from kvbench/far: {constants.ENDPOINT} does not answer, and the local cache .*model\.path=FOLDER"
    with pytest.raises(UserError, match=rf"^model 'far' could not be loaded {told}"):
        load(SPEC)
    assert 1 <= len(silent_hub) <= 2  # the client may connect again by itself


def test_offline_nothing_is_asked(silent_hub, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert hub.hub_options("kvbench/far", "main") == {"revision": "main"}
    assert not silent_hub


@contextmanager
def hub_with(status, monkeypatch):
    """A hub that answers every request with one status."""

    class Hub(QuietHandler):
        def do_GET(self):
            body = b'{"id": "kvbench/far"}'
            self.send_response(int(status[:3]))
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(body)

    with serving(Hub) as address:
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "ENDPOINT", address)
        yield


@pytest.mark.parametrize("status", ["200 OK", "401 Unauthorized", "404 Not Found"])
def test_a_hub_that_answers_or_refuses_is_one_that_answers(status, monkeypatch):
    with hub_with(status, monkeypatch):
        assert hub.answers("kvbench/far", "main")


@pytest.mark.parametrize("status", ["407 Proxy Authentication Required", "502 Bad Gateway"])
def test_the_error_of_a_proxy_is_no_answer(status, monkeypatch):
    with hub_with(status, monkeypatch):
        assert not hub.answers("kvbench/far", "main")


def test_a_hub_that_answers_byte_by_byte_without_end_does_not_answer(monkeypatch):
    with dripping() as address:
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "ENDPOINT", address)
        monkeypatch.setattr(hub, "_PATIENCE", 0.2)
        assert hub.hub_options("kvbench/far", "main") == {"revision": "main", "local_files_only": True}
