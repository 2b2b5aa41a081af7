"""samples.jsonl: every sample told once, whoever runs first, whatever its text."""

import json
import os
from functools import partial
from multiprocessing import get_context

import pytest

from kvbench.benchmarks import Sample
from kvbench.records import samples
from kvbench.records.samples import END, SAMPLES, read_samples, write_samples
from kvbench.utils.locks import open_lock, take, wait_for
from tests.support.runs import arguments, run

ODD = ["</script>", "<!--", "\u2028", '"', "\\", "\x00", "\ud800", "市场", "\n", "\r"]


def sample(name: str, prompt: str = "context question", **more) -> Sample:
    return Sample(name, prompt, ("answer",), 5, question="question", **more)


def test_a_sample_is_told_with_the_end_of_its_prompt(tmp_path):
    long = sample("long", "x" * 5000 + "question", prefix="The answer is", meta={"task": "t"})
    write_samples(tmp_path, [long, sample("short")])
    told = read_samples(tmp_path)
    assert told["long"]["prompt_end"] == ("x" * 5000 + "question")[-END:]
    assert told["long"]["prompt_characters"] == 5008
    assert told["long"] | {"prompt_end": 0} == {
        "sample": "long",
        "prompt_end": 0,
        "prompt_characters": 5008,
        "question": "question",
        "prefix": "The answer is",
        "answers": ["answer"],
        "evidence": [],
        "meta": {"task": "t"},
    }
    assert told["short"]["prompt_end"] == "context question"


@pytest.mark.parametrize("text", ODD)
def test_any_text_comes_back_as_it_was(tmp_path, text):
    write_samples(tmp_path, [sample(text, f"{text} {text}question")])
    assert read_samples(tmp_path)[text]["prompt_end"] == f"{text} {text}question"
    assert (tmp_path / SAMPLES).read_bytes().isascii()


def test_more_samples_are_added_and_what_is_there_stays(tmp_path):
    assert read_samples(tmp_path) == {}
    write_samples(tmp_path, [sample("a"), sample("b")])
    before = (tmp_path / SAMPLES).read_bytes()
    write_samples(tmp_path, [sample("b"), sample("a")])
    assert (tmp_path / SAMPLES).read_bytes() == before
    write_samples(tmp_path, [sample("c"), sample("a")])
    assert (tmp_path / SAMPLES).read_bytes().startswith(before)
    assert list(read_samples(tmp_path)) == ["a", "b", "c"]


CUT = b'{"sample": "b", "prom\n[]\n{"sample": 3}\n'


@pytest.mark.parametrize("damage", [b'{"sample": "b", "prompt_end": "\xff"}\n', b"[" * 100_000 + b"\n", b"5\n", CUT])
def test_bytes_that_are_no_utf8_and_other_shapes_block_no_later_run(tmp_path, damage):
    write_samples(tmp_path, [sample("a"), sample("b")])
    first, _ = (tmp_path / SAMPLES).read_bytes().splitlines(keepends=True)
    (tmp_path / SAMPLES).write_bytes(first + damage)
    assert list(read_samples(tmp_path)) == ["a"]
    write_samples(tmp_path, [sample("a"), sample("b")])
    assert list(read_samples(tmp_path)) == ["a", "b"]


def test_samples_that_are_all_there_wait_for_nobody(tmp_path):
    write_samples(tmp_path, [sample("a"), sample("b")])
    with open_lock(tmp_path / ".lock.samples") as lock:  # as a process that was stopped in the middle
        take(lock)
        write_samples(tmp_path, [sample("b")])


def test_a_wait_for_the_lock_of_samples_names_who_holds_it(tmp_path, monkeypatch):
    lock, told = open_lock(tmp_path / ".lock.samples"), []
    take(lock)
    monkeypatch.setattr(samples, "warn", lambda line: (told.append(line), lock.close()))
    monkeypatch.setattr(samples, "wait_for", partial(wait_for, notice=0.001))
    write_samples(tmp_path, [sample("a")])
    assert len(told) == 1 and f"which process {os.getpid()} on " in told[0]
    assert list(read_samples(tmp_path)) == ["a"]


def _shard(folder, shard):
    for number in range(20):
        write_samples(folder, [sample(f"{shard}-{number}"), sample("shared")])


@pytest.mark.heavy
def test_shards_that_write_at_once_lose_nothing(tmp_path):
    processes = [get_context("fork").Process(target=_shard, args=(tmp_path, shard)) for shard in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert all(process.exitcode == 0 for process in processes)
    names = [json.loads(line)["sample"] for line in (tmp_path / SAMPLES).read_text().splitlines()]
    assert sorted(names) == sorted(["shared", *(f"{shard}-{number}" for shard in range(4) for number in range(20))])


def test_a_run_tells_its_samples_once_for_all_shards_and_limits(tiny_folder, tmp_path):
    few = ["method=streaming_llm", "ratio=0.5"]
    folder = run(*arguments(tiny_folder, tmp_path, *few, "limit=1"))
    assert len(read_samples(folder)) == 1
    for shard in (0, 1):
        run(*arguments(tiny_folder, tmp_path, *few, "shards=2", f"shard={shard}"))
    told = read_samples(folder)
    assert [row["meta"]["depth"] for row in told.values()] == [0, 50, 100]
    assert len((folder / SAMPLES).read_text().splitlines()) == 3
    for row in told.values():
        assert row["prompt_end"].endswith(row["question"]) and row["answers"][0] in row["prompt_end"]
