"""The sides of `speed_qwen.py`, each measured in a process of its own whose largest resident memory is read."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pandas as pd

from kvbench.models.embedded import gguf_of
from scripts.results.served_servers import LLAMA_SERVER, ROOT
from scripts.results.speed_prompt import MODEL, prompt

KVBENCH, GENERATE, LLAMA = "kvbench", "generate", "llama_cpp"
PORT = 8479
START = 300  # seconds for a server to load its model
REQUEST = 3600.0  # seconds for it to answer
OF_TABLE = "prefill_seconds compress_seconds decode_tokens_per_s stored_bytes peak_cache_bytes r_bytes".split()


class Point(NamedTuple):
    prompt_tokens: int
    new_tokens: int
    threads: int


class Child:
    """A process; `end` waits for it and returns the bytes of its largest resident memory."""

    def __init__(self, command: Sequence[str], threads: int, **more: Any):
        surroundings = os.environ | {"OMP_NUM_THREADS": str(threads)}
        self.process = subprocess.Popen([*command], cwd=ROOT, env=surroundings, **more)
        self.name = " ".join(command[:3])

    def end(self) -> int:
        _, status, usage = os.wait4(self.process.pid, 0)
        self.process.returncode = os.waitstatus_to_exitcode(status)
        return usage.ru_maxrss * 1024

    def finish(self) -> int:
        """As `end`, of a program that has to succeed."""
        peak = self.end()
        if self.process.returncode:
            raise SystemExit(f"{self.name} ended with exit code {self.process.returncode}")
        return peak


def by_kvbench(point: Point, overrides: str) -> dict[str, Any]:
    """`benchmark=speed` of one setting, which measures once before the round that counts."""
    grid = [f"lengths=[{point.prompt_tokens}]", "batches=[1]", f"new_tokens=[{point.new_tokens}]"]
    how = ["repeats=1", "warmup=0", "largest=false"]
    benchmark = ["benchmark=speed", *(f"benchmark.{override}" for override in (*grid, *how))]
    # records of an earlier run would be taken for this process's, whose memory is read
    with tempfile.TemporaryDirectory(prefix="kvbench-speed-") as folder:
        model = [f"model={MODEL.name}", "model.dtype=bfloat16", f"output_dir={folder}"]
        command = [sys.executable, "-m", "kvbench", *overrides.split(), *model, *benchmark]
        peak = Child(command, point.threads, stdout=subprocess.DEVNULL).finish()
        (table,) = Path(folder).glob("*/table.csv")
        (row,) = pd.read_csv(table).to_dict("records")
    return {name: row[name] for name in OF_TABLE} | {"peak_rss_bytes": peak}


def by_generate(point: Point, _: str) -> dict[str, Any]:
    """transformers' `generate`."""
    options = ["--length", str(point.prompt_tokens), "--new-tokens", str(point.new_tokens)]
    command = [sys.executable, "-m", "scripts.results.speed_generate", *options]
    child = Child(command, point.threads, stdout=subprocess.PIPE, text=True)
    assert child.process.stdout is not None
    *_, line = child.process.stdout.read().splitlines()
    return {"peak_rss_bytes": child.finish(), **json.loads(line)}


def by_llama_cpp(point: Point, kind: str) -> dict[str, Any]:
    """llama.cpp's server with one slot, by the times in its answer; the second answer counts."""
    ids = prompt(point.prompt_tokens)
    asked = {"prompt": ids, "n_predict": point.new_tokens, "ignore_eos": True, "cache_prompt": False, "temperature": 0}
    with server(point, kind) as (child, url):
        for _ in range(2):
            answer = httpx.post(f"{url}/completion", json=asked, timeout=REQUEST).raise_for_status().json()
        child.process.terminate()
        peak = child.end()
    times = answer["timings"]
    if (read := times["prompt_n"]) != len(ids):
        raise SystemExit(f"llama.cpp read {read} of {len(ids)} tokens")
    figures = {"prefill_seconds": times["prompt_ms"] / 1000, "decode_tokens_per_s": times["predicted_per_second"]}
    return {**figures, "peak_rss_bytes": peak, "timings": times}


@contextmanager
def server(point: Point, kind: str) -> Iterator[tuple[Child, str]]:
    """llama.cpp's server with weights repacked for this CPU, from its first answer on."""
    python = str(ROOT / ".venv-xllamacpp" / "bin" / "python")
    context = point.prompt_tokens + point.new_tokens + 1  # a full slot drops tokens
    limits = ["--slots", "1", "--context", str(context), "--threads", str(point.threads)]
    what = [
        "--model",
        str(gguf_of(MODEL.package)),
        "--alias",
        MODEL.name,
        "--type",
        kind,
        "--port",
        str(PORT),
        "--repack",
    ]
    url = f"http://127.0.0.1:{PORT}"
    child = Child([python, str(LLAMA_SERVER), *what, *limits], point.threads, stdout=subprocess.DEVNULL)
    try:
        _wait(child, url)
        yield child, url
    finally:
        if child.process.returncode is None:
            child.process.kill()
            child.end()


def _wait(child: Child, url: str) -> None:
    end = time.monotonic() + START
    while time.monotonic() < end:
        if child.process.poll() is not None:
            raise SystemExit(f"llama.cpp's server ended with exit code {child.process.returncode}")
        try:
            if httpx.get(f"{url}/health").is_success:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.5)
    raise SystemExit(f"llama.cpp's server did not answer within {START} s")


measured: Mapping[str, Callable[[Point, str], dict[str, Any]]] = {
    KVBENCH: by_kvbench,
    GENERATE: by_generate,
    LLAMA: by_llama_cpp,
}
