"""The same prompts in one process with all threads, and in one process per core with one thread or all threads each.

The ways take turns in one run, on a machine without other work. Every process prefills its share of the prompts and
decodes some tokens; time counts from the moment at which every process has loaded the model.
"""

import time
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.synchronize import Barrier
from statistics import median
from threading import BrokenBarrierError

import torch

from kvbench.evaluation.decode import generate
from kvbench.methods import FullKV
from kvbench.prefill import Needs, prefill
from kvbench.utils.environment import hardware
from scripts.embedded import embedded_model, needle_prompt
from scripts.frame import arguments, tell


@dataclass(frozen=True)
class Way:
    """How many processes share the prompts, and the threads of each."""

    processes: int
    threads: int


@dataclass(frozen=True)
class Work:
    """The prompts of one process: `length` tokens each, after which `new_tokens` are decoded."""

    prompts: int
    length: int
    new_tokens: int


def compute(threads: int, work: Work, loaded: Barrier) -> None:
    """One process: load the model, wait for the others, and read the prompts."""
    try:
        torch.set_num_threads(threads)
        model = embedded_model()
        ids = needle_prompt(model, work.length)
    except BaseException:
        loaded.abort()  # or the others would wait for this process without end
        raise
    loaded.wait()
    for _ in range(work.prompts):
        state = prefill(model.model, ids, Needs())
        generate(model.model, FullKV().compress(state, state.n), state.logits, work.new_tokens, frozenset())


def seconds_of(way: Way, prompts: int, length: int, new_tokens: int) -> float:
    """Seconds until the last of a way's processes has read its share of the prompts."""
    context = get_context("spawn")
    loaded = context.Barrier(way.processes + 1)
    work = Work(prompts // way.processes, length, new_tokens)
    processes = [context.Process(target=compute, args=(way.threads, work, loaded)) for _ in range(way.processes)]
    for process in processes:
        process.start()
    try:
        loaded.wait()
    except BrokenBarrierError:
        raise SystemExit("a process could not begin") from None
    started = time.perf_counter()
    for process in processes:
        process.join()
    seconds = time.perf_counter() - started
    if any(process.exitcode for process in processes):
        raise SystemExit("a process ended with an error")
    return seconds


def main() -> None:
    options = arguments(__doc__, prompts=8, length=1024, new_tokens=32, repeats=3)
    cores = int(hardware()["cores"])
    ways = {
        "one process, all threads": Way(1, cores),
        "a process per core, one thread each": Way(cores, 1),
        "a process per core, all threads each": Way(cores, cores),
    }
    prompts = max(options.prompts // cores, 1) * cores  # each process has the same number
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(options.repeats):
        for name, way in ways.items():
            seconds[name].append(seconds_of(way, prompts, options.length, options.new_tokens))
    first = next(iter(ways))
    ratios = {
        name: [round(a / b, 3) for a, b in zip(taken, seconds[first], strict=True)] for name, taken in seconds.items()
    }
    tell(
        {
            "what": f"seconds of each way to read the same prompts / seconds of {first}, in the same turn",
            "prompts": prompts,
            "prompt_tokens": options.length,
            "new_tokens": options.new_tokens,
            "seconds": {name: [round(s, 2) for s in taken] for name, taken in seconds.items()},
            "ratios": ratios,
            "ratio_median": {name: median(found) for name, found in ratios.items()},
        },
        options.json,
    )


if __name__ == "__main__":
    main()
