"""Requests before a load, one by one, of which nothing is kept: all requests of the load itself then count."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from kvbench.engines.base import Address
from kvbench.engines.http import Client, Refused, Unavailable
from kvbench.engines.server import CHATS, LIKELIEST, PROMPTS


def warm_up(address: Address, rows: Sequence[Mapping[str, Any]], seconds: float) -> None:
    """Send `rows`, as `requests.rows` makes them. What a server does not answer in `seconds`, the load will tell."""
    client = Client(address.url, address.secret, timeout=seconds, retries=0)
    path, key = (CHATS, "messages") if address.chats else (PROMPTS, "prompt")
    try:
        for row in rows:
            payload = {"model": address.model, key: row["prompt"], "max_tokens": row["new_tokens"]}
            with suppress(Refused, Unavailable):
                client.json(path, {**payload, **LIKELIEST, "ignore_eos": True, **address.extras})
    finally:
        client.close()
