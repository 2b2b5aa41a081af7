"""Requests to a server that misbehaves: what is tried again, how long it waits, and what an error says."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import httpx
import pytest

from kvbench.engines import http
from kvbench.engines.http import Client, Refused, Unavailable, _retry_after, proxied
from kvbench.engines.secrets import Secret
from kvbench.engines.server import served
from kvbench.errors import UserError
from tests.support.fake_engine import MISBEHAVIOURS, MODEL, FakeEngine

MENDED = "busy error overloaded starting truncated short empty html garbage nested reset closed".split()
PAYLOAD = {"model": MODEL, "prompt": [1, 2, 3], "max_tokens": 2}


def failing(times: int, kind: str) -> FakeEngine:
    return FakeEngine(lambda number, payload: kind if number < times else "well")


@pytest.mark.parametrize("kind", MENDED)
def test_what_another_attempt_mends_is_tried_again(kind):
    engine, pauses = failing(2, kind), []
    with engine.running() as url:
        client = Client(url, sleep=pauses.append)
        answer = client.json("/completions", PAYLOAD)
        client.close()
    assert answer == engine.answer(PAYLOAD)
    assert len(engine.asked) == 3 and len(pauses) == 2


@pytest.mark.parametrize("kind", MENDED)
def test_after_all_attempts_the_last_failure_is_named(kind):
    engine = failing(99, kind)
    with engine.running() as url:
        client = Client(url, retries=2, sleep=lambda seconds: None)
        with pytest.raises(Unavailable, match=r"\(3 attempts\)$"):
            client.json("/completions", PAYLOAD)
        client.close()
    assert len(engine.asked) == 3


@pytest.mark.parametrize(("client", "call", "made"), [(0, 1, 1), (2, 0, 1), (1, 5, 2)])
def test_a_call_makes_fewer_attempts_than_the_client_and_no_more(client, call, made):
    engine = failing(99, "overloaded")
    with engine.running() as url:
        asking = Client(url, retries=client, sleep=lambda seconds: None)
        with pytest.raises(Unavailable, match=rf"\({made} attempts?\)$"):
            asking.json("/completions", PAYLOAD, retries=call)
        asking.close()
    assert len(engine.asked) == made


@pytest.mark.parametrize("kind", ["slow", "endless"])
def test_a_server_that_never_ends_its_answer_is_left_at_the_deadline(kind):
    engine = failing(99, kind)
    with engine.running() as url:
        client = Client(url, timeout=0.3, retries=2)
        with pytest.raises(Unavailable, match=r"within 0\.3 s"):
            client.json("/completions", PAYLOAD)
        client.close()
    assert len(engine.asked) <= 1


def test_a_body_that_grows_without_end_is_left_at_a_size(monkeypatch):
    monkeypatch.setattr(http, "MOST", 20)
    with failing(0, "").running() as url:
        client = Client(url, retries=0)
        with pytest.raises(Unavailable, match="more than"):
            client.json("/completions", PAYLOAD)
        client.close()


@pytest.mark.parametrize("kind, status", [("refused", 400), ("missing", 404), ("moved", 302), ("unauthorised", 401)])
def test_a_refusal_is_not_tried_again(kind, status):
    engine = failing(99, kind)
    with engine.running() as url:
        client = Client(url)
        with pytest.raises(Refused) as refused:
            client.json("/completions", PAYLOAD)
        client.close()
    assert refused.value.status == status and len(engine.asked) == 1
    if kind == "refused":
        assert "maximum context length is 64 tokens" in str(refused.value)


def test_pauses_double_up_to_a_longest_one_and_differ_by_up_to_a_half(monkeypatch):
    monkeypatch.setattr(http, "FIRST", 0.5)
    client = Client("http://127.0.0.1:9", jitter=lambda: 0.0)
    assert [client._pause(attempt, None) for attempt in (1, 2, 3, 6, 7, 61)] == [0.5, 1, 2, 16, 30, 30]
    client.jitter = lambda: 1.0
    assert client._pause(2, None) == 0.5
    assert client._pause(1, 7.0) == 7.0  # what the server asks for
    client.close()


def test_no_pause_goes_beyond_the_deadline():
    now, pauses = [0.0], []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        now[0] += seconds

    with FakeEngine(lambda number, payload: "busy").running() as url:
        client = Client(url, timeout=50, retries=99, sleep=sleep, clock=lambda: now[0], jitter=lambda: 0.0)
        client._pause = lambda attempt, asked: 20.0
        with pytest.raises(Unavailable, match=r"too many requests .*3 attempts"):
            client.json("/completions", PAYLOAD)
        client.close()
    assert pauses == [20, 20]


@pytest.mark.parametrize("asked, words", [("3600", r"; it asks to wait 3,600 s of engine.timeout=50"), ("1", "")])
def test_a_pause_that_the_server_asks_for_and_is_too_long_is_named(asked, words, monkeypatch):
    monkeypatch.setitem(
        MISBEHAVIOURS, "limits", lambda handler, _: handler.send(429, {"error": "slow down"}, Retry_After=asked)
    )
    with FakeEngine(lambda number, payload: "limits").running() as url:
        client = Client(url, timeout=50, retries=1, sleep=lambda seconds: None)
        with pytest.raises(Unavailable, match=rf"^status 429: slow down{words} \({1 + (asked == '1')} attempts?\)$"):
            client.json("/completions", PAYLOAD)
        client.close()


@pytest.mark.parametrize("value, seconds", [("3", 3), ("0.5", 0.5), ("-4", 0), ("", None), ("soon", None)])
def test_retry_after_in_seconds(value, seconds):
    assert _retry_after(httpx.Response(429, headers={"retry-after": value})) == seconds


def test_retry_after_as_a_date():
    soon = format_datetime(datetime.now(UTC) + timedelta(days=1), usegmt=True)
    assert 86_000 < _retry_after(httpx.Response(503, headers={"retry-after": soon})) <= 86_400
    assert _retry_after(httpx.Response(503, headers={"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"})) == 0


def test_the_key_is_sent_and_crossed_out_of_what_the_server_says():
    engine = FakeEngine(lambda number, payload: "unauthorised")
    with engine.running() as url:
        client = Client(url, Secret("sk-very-secret"))
        with pytest.raises(Refused) as refused:
            client.json("/completions", PAYLOAD)
        assert "sk-very-secret" not in repr(client)
        client.close()
    assert engine.headers[0]["Authorization"] == "Bearer sk-very-secret"
    assert "sk-very-secret" not in str(refused.value) and "Bearer [key]" in str(refused.value)


@pytest.mark.parametrize("before", range(270, 301, 3))
def test_no_part_of_a_key_is_left_where_a_servers_words_are_cut(before, monkeypatch):
    """It is crossed out before its text is cut, wherever it stands."""
    key = "sk-0123456789-abcdefghij"
    node = {"error": {"message": f"{'x' * before}{key} is no key"}}
    monkeypatch.setitem(MISBEHAVIOURS, "says", lambda handler, _: handler.send(403, node))
    engine = FakeEngine(lambda number, payload: "says")
    with engine.running() as url, pytest.raises(Refused) as refused:
        Client(url, Secret(key)).json("/completions", {"model": "m", "prompt": [1], "max_tokens": 1})
    assert not any(key[: end + 1] in str(refused.value) for end in range(3, len(key)))


@pytest.fixture
def proxy(monkeypatch):
    """Call it with a proxy of the environment, which is the only one."""
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    return lambda value: monkeypatch.setenv("ALL_PROXY", value)


@pytest.mark.parametrize(
    "value, words", [("foo://127.0.0.1:9", "Unknown scheme for proxy"), ("http://127.0.0.1:x", "Invalid port: 'x'")]
)
def test_a_proxy_that_cannot_be_used_is_one_line(value, words, proxy):
    proxy(value)
    with pytest.raises(UserError, match=rf"^the proxies in ALL_PROXY cannot be used: {words}"):
        Client("http://127.0.0.1:9").json("/models")


def test_a_proxy_between_kvbench_and_a_server_is_named(proxy, monkeypatch):
    assert proxied("http://127.0.0.1:9/v1") == ""
    proxy("http://127.0.0.1:9")
    with FakeEngine().running() as url:
        with pytest.raises(UserError, match=r"proxy is asked for it: NO_PROXY=127\.0\.0\.1 goes around the proxy$"):
            served(Client(url, retries=0), [MODEL])
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        assert served(Client(url), [MODEL]) == MODEL and proxied(url) == ""


def test_a_file_without_certificates_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "none.pem"))
    with pytest.raises(
        UserError, match=r"SSL_CERT_FILE=.*none\.pem has no certificates that can be read: No such file"
    ):
        Client("https://127.0.0.1:9")
    (tmp_path / "empty.pem").touch()
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "empty.pem"))
    with pytest.raises(UserError, match=r"empty\.pem has no certificates that can be read: .*no certificate"):
        Client("https://127.0.0.1:9")
