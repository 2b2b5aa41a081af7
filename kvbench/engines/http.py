"""Requests to a server that may be slow, busy, broken or gone: retried with growing pauses until a deadline."""

import json
import os
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cache
from threading import local
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from kvbench.engines.secrets import Secret
from kvbench.engines.server_answers import MOST_WORDS, words_of
from kvbench.errors import UserError
from kvbench.utils.text import count, first_line

if TYPE_CHECKING:  # httpx comes with the extra `server`
    from ssl import SSLContext

    import httpx

Parsed = TypeVar("Parsed")

AGAIN = frozenset({408, 425, 429, 500, 502, 503, 504})  # statuses that another attempt may change
FIRST, LONGEST = 0.5, 30.0  # seconds of the first and of the longest pause
MOST = 64 * 2**20  # largest size of an answer in bytes


class Refused(Exception):
    """The server refused the request; `status` is HTTP's, and the message has the server's words."""

    def __init__(self, status: int, words: str):
        super().__init__(f"the server refuses with status {status}: {words}" if words else f"status {status}")
        self.status, self.words = status, words


class Unavailable(Exception):
    """No answer after all attempts; the message is that of the last attempt, and so is `status`, if it had one."""

    def __init__(self, why: str, status: int | None):
        super().__init__(why)
        self.status = status


class _Again(Exception):
    """This attempt failed, and the next may succeed; `status` is HTTP's, and `pause` the server's Retry-After, in
    seconds."""

    def __init__(self, why: str, status: int | None = None, pause: float | None = None):
        super().__init__(why)
        self.status, self.pause = status, pause


@dataclass
class Client:
    """JSON over HTTP. Threads may share it."""

    base: str  # URL without a slash at its end
    secret: Secret | None = None
    timeout: float = 600.0  # seconds for a request, all attempts included
    retries: int = 6
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic
    jitter: Callable[[], float] = random.random
    opened: "list[httpx.Client]" = field(init=False, repr=False, default_factory=list)
    mine: local = field(init=False, repr=False, default_factory=local)

    def __post_init__(self) -> None:
        self.headers = {"User-Agent": "kvbench", "Accept": "application/json"}
        if self.secret is not None:
            self.headers["Authorization"] = f"Bearer {self.secret.value}"
        self.certificates = _certificates(os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))

    @property
    def http(self) -> "httpx.Client":
        """The calling thread's client. A shared client would search the connections of all threads at each question."""
        import httpx

        if not hasattr(self.mine, "http"):
            options: dict[str, Any] = {"headers": self.headers, "verify": self.certificates}
            try:
                self.mine.http = httpx.Client(**options, follow_redirects=False, trust_env=True)
            except (ImportError, ValueError, httpx.InvalidURL) as error:
                names = [name for name, value in os.environ.items() if name.lower().endswith("_proxy") and value]
                raise UserError(f"the proxies in {' and '.join(names)} cannot be used: {first_line(error)}") from error
            self.opened.append(self.mine.http)
        client: httpx.Client = self.mine.http
        return client

    def close(self) -> None:
        for client in self.opened:
            client.close()

    def json(
        self, path: str, payload: dict[str, Any] | None = None, retries: int | None = None
    ) -> dict[str, Any] | list[Any]:
        """The JSON of GET, or of POST with a payload, at a path below `base`. Raises Refused or Unavailable.

        retries  fewer than the client's; more are not made.
        """
        return self._request(path, payload, retries, _parsed)

    def text(self, path: str, retries: int | None = None) -> str:
        """The text at a path below `base`, not parsed; otherwise as `json`."""
        return self._request(path, None, retries, lambda body: body.decode("utf-8", "replace"))

    def _request(
        self, path: str, payload: dict[str, Any] | None, retries: int | None, parse: Callable[[bytes], Parsed]
    ) -> Parsed:
        end = self.clock() + self.timeout
        most = 1 + (self.retries if retries is None else min(retries, self.retries))
        attempt = 1
        while True:
            try:
                return parse(self._once(path, payload, end))
            except _Again as failed:
                pause = self._pause(attempt, failed.pause)
                if attempt == most or self.clock() + pause >= end:
                    wish = pause == failed.pause and attempt < most  # the server's own pause is too long
                    wait = f"; it asks to wait {failed.pause:,.0f} s of engine.timeout={self.timeout:g}" if wish else ""
                    why = f"{self.clean(str(failed))}{wait} ({count(attempt, 'attempt')})"
                    raise Unavailable(why, failed.status) from failed
                self.sleep(pause)
                attempt += 1

    def _once(self, path: str, payload: dict[str, Any] | None, end: float) -> bytes:
        """One attempt, which ends at `end` by the clock even while the server sends."""
        import httpx

        left = end - self.clock()
        if left <= 0:
            raise _Again(f"no answer within {self.timeout:g} s")
        method = "GET" if payload is None else "POST"
        try:
            with self.http.stream(method, self.base + path, json=payload, timeout=left) as response:
                body = self._body(response, end)
        except httpx.TimeoutException as error:
            raise _Again(f"no answer within {self.timeout:g} s") from error
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as error:
            raise _Again(first_line(error) or type(error).__name__) from error
        if response.status_code == 200:
            return body
        words = self._words(body)
        if response.status_code in AGAIN:
            why = f"status {response.status_code}{': ' + words if words else ''}"
            raise _Again(why, response.status_code, _retry_after(response))
        if place := response.headers.get("location"):
            words = f"it redirects to {self.clean(place)[:MOST_WORDS]}"
        raise Refused(response.status_code, words)

    def _body(self, response: "httpx.Response", end: float) -> bytes:
        body = bytearray()
        for part in response.iter_bytes():
            body += part
            if self.clock() > end:
                raise _Again(f"the answer did not end within {self.timeout:g} s")
            if len(body) > MOST:
                raise _Again(f"an answer of more than {MOST >> 20} MiB")
        return bytes(body)

    def _pause(self, attempt: int, retry_after: float | None) -> float:
        """Seconds of the pause after an attempt: doubled each time, minus a random part of up to a half, and at least
        the server's Retry-After."""
        pause = min(FIRST * 2 ** (attempt - 1), LONGEST) * (1 - self.jitter() / 2)
        return max(pause, retry_after or 0.0)

    def clean(self, text: str) -> str:
        """A text without the key. Texts are cleaned before they are cut, so that no part of a key remains."""
        return self.secret.out_of(text) if self.secret else text

    def _words(self, body: bytes) -> str:
        """The server's description of an error, in one line."""
        try:
            node = json.loads(body.decode("utf-8", "replace"))
        except (ValueError, RecursionError):
            return ""
        return self.clean(words_of(node))[:MOST_WORDS]


@cache
def _certificates(file: str | None, folder: str | None) -> "SSLContext":
    """The certificates that SSL_CERT_FILE and SSL_CERT_DIR name, or else certifi; reading them takes 20 ms."""
    import httpx

    try:
        return httpx.create_ssl_context()
    except OSError as error:  # of the file alone: a folder is read when a certificate is needed
        raise UserError(f"SSL_CERT_FILE={file} has no certificates that can be read: {error.strerror}") from error


def proxied(url: str) -> str:
    """That a proxy of the environment stands between this machine and an address, in words; "" without one."""
    parts = urlsplit(url)
    host, proxies = parts.hostname or "", getproxies()
    if not (proxies.get(parts.scheme) or proxies.get("all")) or proxy_bypass(host):
        return ""
    return f"; the environment's proxy is asked for it: NO_PROXY={host} goes around the proxy"


def _parsed(body: bytes) -> Any:
    try:
        return json.loads(body.decode())
    except UnicodeDecodeError as error:
        raise _Again("the answer is not UTF-8") from error
    except (ValueError, RecursionError) as error:
        raise _Again("the answer is not JSON, or was cut short") from error


def _retry_after(response: "httpx.Response") -> float | None:
    """The seconds of the header Retry-After, which is a number or a date; None without it."""
    value = response.headers.get("retry-after", "").strip()
    try:
        return max(float(value), 0.0)
    except ValueError:
        pass
    try:
        return max((parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds(), 0.0)
    except (TypeError, ValueError):
        return None
