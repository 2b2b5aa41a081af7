"""A made-up run's folder, as a run leaves it: for tests of what is made from one."""

import json
import random
from pathlib import Path

from kvbench.cache.kept_positions import encode

LAYERS = 4


def record(sample: str, setting: str, score: float, prediction: str = "an answer", **more) -> dict:
    """A record with every field of a real one."""
    name, _, requested = setting.rpartition(" ")
    ratio = float(requested) if requested.replace(".", "", 1).isdigit() else None
    method = setting if ratio is None else name
    share = ratio or 1.0
    draw = random.Random(f"{sample} {setting}").random
    return {
        "key": f"{sample} {setting} {more.get('parameters')}",
        "kind": "method",
        "run": "run-1",
        "benchmark": "made_up",
        "model": "tiny",
        "sample": sample,
        "setting": setting,
        "method": method,
        "parameters": "{}",
        "ratio": ratio,
        "budget": None,
        "floored": False,
        "question": "visible",
        "compress_at": "prefill_end",
        "full_cache_tokens": 1,
        "prompt_tokens": 640,
        "question_tokens": 0,
        "answers": ["an answer"],
        "prediction": prediction,
        "tokens": [1, 2, 3],
        "scores": {"score": score, "exact": float(score == 1)},
        "r1": share,
        "r2": 1.0,
        "r3": 1.0,
        "r": share,
        "r_corrected": share,
        "r_bytes": share + (0.01 if ratio else 0),
        "stored_bytes": 100,
        "full_bytes": 500,
        "nominal_per_layer": [round(640 * share)] * LAYERS,
        "kept_per_layer": [640 * share] * LAYERS,
        "kept_positions": [encode([1.0 if draw() < share else 0.0 for _ in range(64)]) for _ in range(LAYERS)],
        "memory": "shared",
        "peak_cache_bytes": 600,
        "peak_device_bytes": None,
        "prefill_seconds": 1.0,
        "compress_seconds": 0.1,
        "decode_steps": 2,
        "decode_seconds": 0.5,
        "close_call": None,
        "question_seconds": 0.0,
        "decode_batch": 1,
        **more,
    }


def write_run(folder: Path, records: list[dict], samples: list[dict] = (), manifests: list[dict] = ()) -> Path:
    """The folder, with samples and manifests where there are some."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "records.jsonl").write_text("".join(json.dumps(row) + "\n" for row in records))
    if samples:
        (folder / "samples.jsonl").write_text("".join(json.dumps(row) + "\n" for row in samples))
    for number, manifest in enumerate(manifests):
        (folder / "manifests").mkdir(exist_ok=True)
        (folder / "manifests" / f"{number}.json").write_text(json.dumps(manifest))
    return folder


def sample_row(sample: str, end: str = "some text. What?", question: str = "What?", **more) -> dict:
    """A line of samples.jsonl."""
    return {
        "sample": sample,
        "prompt_end": end,
        "prompt_characters": 5000,
        "question": question,
        "prefix": "",
        "answers": ["an answer"],
        "meta": {},
        **more,
    }


def manifest(**more) -> dict:
    return {
        "run": "run-1",
        "started": "2026-01-01T00:00:00+00:00",
        "status": "finished",
        "dtype": "torch.float32",
        "records": 4,
        "wall_seconds": 1.5,
        "kvbench": "0.1.0",
        "git": "0123456789abcdef",
        "packages": {"torch": "2.13.0", "transformers": "5.23.0"},
        "hardware": {"cpu": "a processor", "gpus": []},
        **more,
    }
