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
    return {
        "run": run,
        "started": "2026-01-01T00:00:00+00:00",
        "status": "finished",
        "model": {"source": "folder", "files": {"model.safetensors": "ab" * 32}},
        "chat_template": "auto",
        "dtype": "torch.float32",
        "device": "cpu",
        "data_sha256": "cd" * 32,
        "kvbench": "0.1.0",
        "git": "ef" * 20,
        "packages": {"torch": "2.13.0", "transformers": "5.23.0"},
        "hardware": {"cpu": "AMD EPYC", "gpus": []},
        "wall_seconds": 2.5,
        "records": 2,
    } | changes


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
