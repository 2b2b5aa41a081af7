"""A server's gauges of capacity under load (/metrics), and the load beyond which throughput does not grow."""

import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import mul

from kvbench.engines.base import Address
from kvbench.engines.http import Client, Refused, Unavailable
from kvbench.engines.server import cache_labels

# Gauges of vLLM and llama-server -> kvbench's name of their maximum.
GAUGES = {
    "vllm:num_requests_running": "running",
    "vllm:num_requests_waiting": "waiting",
    "vllm:kv_cache_usage_perc": "cache_used",
    "vllm:gpu_cache_usage_perc": "cache_used",
    "llamacpp:requests_processing": "running",
    "llamacpp:requests_deferred": "waiting",
    "llamacpp:kv_cache_usage_ratio": "cache_used",
}
LINE = re.compile(r"^([\w:]+)(?:\{[^}]*\})? +([-+.\deE]+)", re.MULTILINE)
INTERVAL = 0.5  # seconds between two reads of the gauges
KNEE = 0.1  # relative growth of throughput that a larger load must give


def gauges(text: str) -> dict[str, float]:
    """The gauges of a page of metrics, and the tokens that the cache has room for; {} for any other text.

    With data parallelism vLLM has a line for each engine: requests and room are those of all, the share that is used
    is that of the fullest engine.
    """
    numbers: dict[str, float] = {}
    for metric, value in LINE.findall(text):
        if metric in GAUGES and _is_number(value):
            name, number = GAUGES[metric], float(value)
            earlier = numbers.get(name, 0.0)
            numbers[name] = max(earlier, number) if name == "cache_used" else earlier + number
    if (room := _room(cache_labels(text))) is not None:
        numbers["cache_tokens"] = float(room)
    return numbers


def _room(engines: Sequence[Mapping[str, str]]) -> int | None:
    """The tokens that the caches of all engines have room for; None where one of them does not say it.

    Newer vLLM says each engine's room. Blocks times their size is another number for a model with several kinds of
    layers, whose blocks have several sizes, of which the label has the least. vLLM adds the blocks of all engines up
    before it writes them into each line.
    """
    if rooms := _numbers(engines, "kv_cache_size_tokens"):
        return sum(rooms)
    blocks, sizes = _numbers(engines, "num_gpu_blocks"), _numbers(engines, "block_size")
    return max(map(mul, blocks, sizes)) if blocks and sizes else None


def _numbers(engines: Sequence[Mapping[str, str]], label: str) -> list[int]:
    """The label's number of each engine; [] where one has none, which vLLM writes as None."""
    texts = [labels.get(label, "") for labels in engines]
    return [int(text) for text in texts] if all(text.isdecimal() for text in texts) else []


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


@contextmanager
def watched(address: Address) -> Iterator[dict[str, float]]:
    """The maximum of each gauge within the block, complete when the block ends; {} if the server has no gauges."""
    most: dict[str, float] = {}
    ended = threading.Event()
    client = Client(address.url.removesuffix("/v1"), address.secret, timeout=5.0, retries=0)

    def look() -> None:
        try:
            for name, value in gauges(client.text("/metrics")).items():
                most[name] = max(value, most.get(name, 0.0))
        except (Refused, Unavailable):
            return  # a busy server may not answer; a server without metrics never does

    def watch() -> None:
        while not ended.wait(INTERVAL):
            look()

    look()
    thread = threading.Thread(target=watch, daemon=True)
    if most:
        thread.start()
    try:
        yield most
    finally:
        ended.set()
        if most:
            thread.join()
        client.close()


def knee(loads: Sequence[tuple[float, float]]) -> float | None:
    """The smallest load beyond which no load gives more than KNEE more tokens per second.

    loads: pairs of a load and its throughput. None for fewer than two loads, and if the largest load still gave more:
    then the knee is not reached.
    """
    ordered = sorted(loads)
    if len(ordered) < 2:
        return None
    for place, (load, throughput) in enumerate(ordered):
        if all(later <= throughput * (1 + KNEE) for _, later in ordered[place + 1 :]):
            return None if place == len(ordered) - 1 else load
    return None
