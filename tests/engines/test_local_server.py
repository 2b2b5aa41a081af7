"""engine.command: kvbench starts a server for each flag, asks it, and ends it."""

import socket
import sys

import pytest

from kvbench.engines.base import Gone
from kvbench.engines.local_server import started
from kvbench.errors import UserError
from kvbench.records import load
from tests.support.fake_engine import MODEL, FakeEngine
from tests.support.paths import ROOT
from tests.support.runs import arguments, run

SERVER = ROOT / "tests" / "support" / "small_server.py"


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def command(tiny_folder, tmp_path, flags: str, url: str, start: str) -> list[str]:
    first = arguments(tiny_folder, tmp_path)[:-3]
    engine = ["engine=openai", f"engine.url={url}", f"engine.flags={flags}", f"engine.command='{start}'"]
    return [*first, f"output_dir={tmp_path}", *engine, f"engine.served_model={MODEL}"]


@pytest.mark.heavy
def test_each_flag_has_a_server_of_its_own_at_one_address(tiny_folder, tmp_path):
    port = free_port()
    start = f"{sys.executable} {SERVER} {port} {{flags}}"
    folder = run(*command(tiny_folder, tmp_path, "[f16,q4_0]", f"http://127.0.0.1:{port}/v1", start))
    records = load(folder)
    assert records.groupby("setting")["prediction"].unique().map(list).to_dict() == {
        "openai f16": ["f16"],
        "openai q4_0": ["q4_0"],
    }
    assert all("small_server" not in parameters for parameters in records["parameters"])
    with socket.socket() as one:
        assert one.connect_ex(("127.0.0.1", port)), "the server ended with the run"


def test_a_server_that_does_not_start_is_one_line(tiny_folder, tmp_path):
    port = free_port()
    url = f"http://127.0.0.1:{port}/v1"
    start = f"{sys.executable} {SERVER} {port} {{flags}}"
    with pytest.raises(UserError, match=r"openai refuses: engine\.command: .*exit code 1: error: no such cache type"):
        run(*command(tiny_folder, tmp_path, "refuses", url, start))
    with pytest.raises(UserError, match=r"engine\.command: no-such-program cannot be started: No such file"):
        run(*command(tiny_folder, tmp_path, "f16", url, "no-such-program --port 1"))
    with FakeEngine().running() as other, pytest.raises(UserError, match="another server answers there already"):
        run(*command(tiny_folder, tmp_path, "f16", other, start))


@pytest.mark.parametrize(
    "start, words",
    [
        ('server "x', r"'server \"x' is not a command line: No closing quotation"),
        ("", "it is empty"),
        (" ", "it is empty"),
    ],
)
def test_a_command_that_is_none_is_one_line(tiny_folder, tmp_path, start, words):
    with pytest.raises(UserError, match=rf"openai f16: engine\.command: {words}"):
        run(*command(tiny_folder, tmp_path, "f16", "http://127.0.0.1:9/v1", start))


def test_a_command_that_starts_one_server_for_several_flags_is_refused(tiny_folder, tmp_path):
    given = command(tiny_folder, tmp_path, "[f16,q8_0]", "http://127.0.0.1:9/v1", "server --ctk q8_0")
    with pytest.raises(
        UserError, match=r"starts the same server for engine\.flags=f16 and q8_0: write \{flags\} where"
    ):
        run(*given)


def test_what_is_started_ends_where_the_block_fails():
    answers = iter([False, True])
    with (
        pytest.raises(ValueError),
        started(f"{sys.executable} -c 'import time; time.sleep(600)'", lambda: next(answers)),
    ):
        raise ValueError
    with pytest.raises(Gone, match="cannot be started"), started("no-such-program", lambda: False):
        pass
