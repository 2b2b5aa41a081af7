"""Made-up runs of answers and of loads under the same settings: f16; q8_0, which answers alike and faster; q4_0, which
loses half and is as fast as f16."""

import json
from pathlib import Path

from kvbench.records.store import Store
from tests.support import records as made_up


def engine_record(setting: str, number: int, score: float, equal: bool | None, **changes: object) -> dict:
    """An answer; where it is not `equal` it is another than f16's, and by its setting."""
    told = {"setting": setting, "method": setting, "parameters": json.dumps({"flags": setting})}
    more = {} if equal is None else {"equal": equal, "baseline": "f16 0"}
    made = {"scores": {"score": score}, "prediction": f"by {setting}" if equal is False else "an answer"}
    every = {"benchmark": "jsonl", "sample": str(number), "distance": None, "top": None} | made | told | more | changes
    return made_up.record("engine", **every)


def load_record(
    setting: str, rate: float, first: list[float], tokens: list[float], version: str = "", **changes: object
) -> dict:
    """Without latencies a load that failed."""
    repeats = {"first_token_ms_mean": first, "first_token_ms_p50": first, "tokens_per_s": tokens} if first else {}
    return made_up.record(
        "serve",
        **{"benchmark": "serve", "sample": f"concurrent-{rate:g}", "setting": setting, "method": setting},
        **{"parameters": json.dumps({"flags": setting + version}), "profile": "concurrent", "rate": rate},
        **{"figures": {name: sum(values) / len(values) for name, values in repeats.items()}, "repeats": repeats},
        **changes,
    )


def write(folder: Path, records: list[dict]) -> Path:
    with Store(folder) as store:
        for record in records:
            store.append(record)
    return folder


def served_runs(folder: Path) -> tuple[Path, Path]:
    """The folders of both, `answers` and `loads`."""
    right = [engine_record("f16", number, 1.0, None) for number in range(200)]
    right += [engine_record("q8_0", number, 1.0, number < 190) for number in range(200)]
    right += [engine_record("q4_0", number, float(number % 2), number % 2 == 0) for number in range(200)]
    answers = write(folder / "answers", right)
    loads = []
    for rate in (1.0, 4.0):
        loads += [
            load_record("f16", rate, [100.0, 101.0, 99.0], [50 * rate, 51 * rate, 49 * rate]),
            load_record("q8_0", rate, [90.0, 91.0, 89.0], [60 * rate, 61 * rate, 59 * rate]),
            load_record("q4_0", rate, [200.0, 202.0, 198.0], [50 * rate, 51 * rate, 49 * rate]),
        ]
    return answers, write(folder / "loads", loads)
