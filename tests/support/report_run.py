"""A made-up run's folder, as a run leaves it: for tests of what is made from one."""

import json
import random
from pathlib import Path

from kvbench.cache.kept_positions import encode
from tests.support import records

LAYERS = 4


def record(sample: str, setting: str, score: float, prediction: str = "an answer", **more) -> dict:
    """A record of `setting`, which ends in its ratio; each kept position of its 64 is drawn by sample and setting."""
    name, _, requested = setting.rpartition(" ")
    ratio = float(requested) if requested.replace(".", "", 1).isdigit() else None
    share = ratio or 1.0
    draw = random.Random(f"{sample} {setting}").random
    made = {
        "key": f"{sample} {setting} {more.get('parameters')}",
        "run": "run-1",
        "benchmark": "made_up",
        "sample": sample,
        "setting": setting,
        "method": setting if ratio is None else name,
        "ratio": ratio,
        "prompt_tokens": 640,
        "prediction": prediction,
        "scores": {"score": score, "exact": float(score == 1)},
        "r1": share,
        "r": share,
        "r_corrected": share,
        "r_bytes": share + (0.01 if ratio else 0),
        "nominal_per_layer": [round(640 * share)] * LAYERS,
        "kept_per_layer": [640 * share] * LAYERS,
        "kept_positions": [encode([1.0 if draw() < share else 0.0 for _ in range(64)]) for _ in range(LAYERS)],
    }
    return records.record(**made | more)


def write_run(folder: Path, made: list[dict], samples: list[dict] = (), manifests: list[dict] = ()) -> Path:
    """The folder, with samples and manifests where there are some."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "records.jsonl").write_text("".join(json.dumps(row) + "\n" for row in made))
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
    return records.manifest(**{"run": "run-1"} | more)


def speed_record(setting: str, tokens_per_s: float, **more) -> dict:
    """A record of speed of one sequence with a prompt of 640 tokens, which decodes 11 more in one repeat."""
    seconds = 10 / tokens_per_s
    measured = {
        "fits": True,
        "sequences": 1,
        "length": 640,
        "new_tokens": 11,
        "batch": 1,
        "decode_steps": 10,
        "prefill_seconds": 2.0,
        "decode_seconds": seconds,
        "decode_tokens_per_s": tokens_per_s,
        "prefilled_bytes": 2**20,
        "largest_batch": 7,
        "spread_seconds": {"decode": {"min": seconds, "max": seconds}},
        "repeats_seconds": {"decode": [seconds]},
        "conditions": {"before": {"load": 0.5}, "after": {"load": 1.0}},
        "machine": "AMD EPYC",
        "threads": 2,
        "torch": "2.13.0",
    }
    made = record(f"speed-{more.get('threads', 2)}", setting, 0.0)
    same = {name: made[name] for name in ("key", "run", "sample", "setting", "method", "ratio")}
    return records.record("speed", **same | {"benchmark": "speed"} | measured | more)
