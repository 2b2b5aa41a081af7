"""Records and manifests of made-up runs, written as runs write them."""

import json
from pathlib import Path

from tests.support import records as made_up


def record(sample: int = 0, setting: str = "snapkv 0.2", **changes) -> dict:
    made = {
        "run": "r1",
        "benchmark": "niah",
        "model": "smollm2-135m",
        "sample": f"s{sample}",
        "setting": setting,
        "parameters": '{"scoring": {"window": 32}, "sinks": 4}',
        "question": "visible",
        "prediction": "1234567",
        "tokens": [1, 2, 3],
        "scores": {"digits": 1.0},
        "stored_bytes": 1000,
        "memory": "shared",
        "peak_cache_bytes": 5000,
        "decode_seconds": 0.5,
    } | changes
    return made_up.record(**{"key": f"{made['sample']}-{made['setting']}-{made['question']}"} | made)


def manifest(run: str = "r1", **changes) -> dict:
    return made_up.manifest(run=run, **changes)


def write_manifests(folder: Path, *made_by: dict) -> None:
    (folder / "manifests").mkdir(exist_ok=True)
    for each in made_by:
        (folder / "manifests" / f"{each['run']}.json").write_text(json.dumps(each))


def write(folder: Path, records: list[dict], *made_by: dict, shard: str = "") -> Path:
    folder.mkdir(exist_ok=True, parents=True)
    write_manifests(folder, *made_by)
    path = folder / f"records{shard}.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in records))
    return path
