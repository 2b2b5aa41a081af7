"""Speed of Qwen2.5-Coder-0.5B at lengths where the cache matters: `python -m scripts.results.speed_qwen`

On one machine and one prompt of each length: `benchmark=speed` for FullKV and four methods in bfloat16, transformers'
`generate` with the same weights, and llama.cpp's server with those of the GGUF file (Q4_K_M), by the times that it
reports. Each is a process of its own, whose largest resident memory stands beside the counted bytes, and reads the
prompt twice: the second time counts.

A measurement is kept in runs/speed_qwen as soon as it is made, so a stopped run goes on where it was; tables and what
made them go to results/speed (--out names another folder). Each machine has a folder of its own, which its CPU names:
times of two machines say nothing of their settings. --lengths and --settings choose measurements, --tables only makes
the tables. It needs idle cores, and xllamacpp in .venv-xllamacpp for llama.cpp (results/engines/served).
"""

import argparse
import json
import os
from pathlib import Path
from typing import Any

import pandas as pd

from kvbench.report.tables.text_table import TextTable
from kvbench.utils.environment import hardware
from kvbench.utils.files import write_atomically
from scripts.frame import folder_name, provenance, script_parser, until_stopped, write
from scripts.results.served_servers import ROOT
from scripts.results.speed_figure import draw
from scripts.results.speed_prompt import MODEL
from scripts.results.speed_sides import GENERATE, KVBENCH, LLAMA, Point, measured

SETTINGS = {
    "FullKV": (KVBENCH, "method=full"),
    "SnapKV 0.2": (KVBENCH, "method=snapkv ratio=0.2"),
    "SpindleKV 0.2": (KVBENCH, "method=spindle ratio=0.2"),
    "KIVI": (KVBENCH, "method=kivi"),
    "ggml q8_0": (KVBENCH, "method=ggml_q8_0"),
    "transformers generate": (GENERATE, ""),
    "llama.cpp f16": (LLAMA, "f16"),
    "llama.cpp q8_0": (LLAMA, "q8_0"),
}
COLUMNS = {
    "setting": "setting",
    "length": "tokens",
    "prefill_seconds": "prefill s",
    "compress_seconds": "compress s",
    "prefill_tokens_per_s": "prefill tokens/s",
    "decode_tokens_per_s": "decode tokens/s",
    "stored_bytes": "cache MiB",
    "peak_cache_bytes": "peak of caches MiB",
    "peak_rss_bytes": "peak of process MiB",
}


def rows_of(folder: Path) -> list[dict[str, Any]]:
    """What has been measured."""
    rows = [json.loads(path.read_text("utf-8")) for path in folder.glob("*.json")]
    names = [*SETTINGS]
    return sorted(rows, key=lambda row: (row["length"], names.index(row["setting"])))


def measure(options: argparse.Namespace) -> None:
    """Every measurement that is chosen and not there, the short lengths first."""
    folder = options.runs / folder_name(hardware()["cpu"])
    folder.mkdir(parents=True, exist_ok=True)
    for length in sorted(options.lengths):
        point = Point(length - options.new_tokens, options.new_tokens, options.threads)
        for setting in options.settings:
            path = folder / f"{length}-{setting.replace(' ', '-')}.json"
            if path.is_file():
                continue
            load = os.getloadavg()[0]
            side, what = SETTINGS[setting]
            row = {
                "length": length,
                "setting": setting,
                "prompt_tokens": point.prompt_tokens,
                **measured[side](point, what),
            }
            row["prefill_tokens_per_s"] = point.prompt_tokens / row["prefill_seconds"]
            conditions = {"new_tokens": point.new_tokens, "threads": point.threads, "load_before": load}
            write(row | conditions | provenance(), path, indent=1)
            print(
                f"{length} {setting}: {row['prefill_seconds']:.1f} s, {row['decode_tokens_per_s']:.2f} tokens/s",
                flush=True,
            )


def report(options: argparse.Namespace) -> None:
    """table.md, table.csv, speed.json and the figure of each machine's measurements."""
    machines = [rows for folder in sorted(options.runs.glob("*/")) if (rows := rows_of(folder))]
    if not machines:
        raise SystemExit(f"{options.runs} has no measurement")
    for rows in machines:
        write_tables(rows, options.out / f"{MODEL.name}-cpu" / folder_name(rows[0]["hardware"]["cpu"]))


def write_tables(rows: list[dict[str, Any]], out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    frame = pd.DataFrame(rows)
    frame.reindex(columns=[*COLUMNS]).to_csv(out / "table.csv", index=False, float_format="%.6g")
    cpu, threads = rows[0]["hardware"]["cpu"], rows[0]["threads"]
    about = f"{MODEL.name} · {cpu}, {threads} threads · with {rows[0]['new_tokens']} decoded tokens"
    cells = [[_cell(name, row.get(name)) for name in COLUMNS] for row in rows]
    write_atomically(out / "table.md", TextTable([*COLUMNS.values()], cells, about).markdown())
    write({"rows": rows}, out / "speed.json", indent=1)
    draw(frame, out / "speed", about)
    print(out)


def _cell(name: str, value: Any) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    if name.endswith("_bytes"):
        return f"{value / 2**20:,.1f}"
    return f"{value:,}" if isinstance(value, int) else f"{value:.2f}"


def main() -> None:
    parser = script_parser(__doc__)
    parser.add_argument("--lengths", type=int, nargs="+", default=[4096, 16384, 32768], help="with the decoded tokens")
    parser.add_argument("--settings", nargs="+", default=[*SETTINGS], choices=SETTINGS)
    parser.add_argument("--new-tokens", type=int, default=16, help="decoded; default: %(default)s")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="default: %(default)s")
    parser.add_argument("--tables", action="store_true", help="measure nothing")
    parser.add_argument("--runs", type=Path, default=Path("runs/speed_qwen"), help="folder of the measurements")
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "speed")
    options = parser.parse_args()
    if not options.tables:
        with until_stopped():
            measure(options)
    report(options)


if __name__ == "__main__":
    main()
