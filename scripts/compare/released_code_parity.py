"""Does kvbench keep, code and allocate what the released code of the methods does, on the same tensors?

    python -m scripts.compare.released_code_parity kvcache-factory=PATH snapkv=PATH … [--out FILE.json]

Each PATH is a checkout of that project, made beforehand: nothing is fetched, and nothing of it is copied. Single files
are loaded from it, with placeholders for what they import and this environment does not have. Prints a line of the
table as soon as it is counted. scripts/README.md has the projects, the commits compared and the result.
"""

import json
from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from importlib.metadata import version
from pathlib import Path

import torch

from scripts.compare.parity import (
    attention_matching,
    blocks,
    cake,
    chunks,
    clusters,
    compactor,
    cur,
    finch,
    gear,
    h2o,
    heads,
    kivi,
    kvcompose,
    kvquant,
    kvtc,
    kvzip,
    kvzip_heads,
    lava,
    leverage,
    low_rank,
    minicache,
    nacl,
    omnikv,
    pyramidinfer,
    quest,
    rerotation,
    rkv,
    rocketkv,
    simlayerkv,
    think,
    threshold,
    triattention,
)
from scripts.compare.parity.agreement import Agreement
from scripts.frame import script_parser

CLUSTERS = "pyramidkv/pyramidkv_utils.py"
PROJECTS = {
    "kvcache-factory": [(clusters.run, CLUSTERS), (minicache.run, "pyramidkv/minicache.py")],
    "pyramidkv-2024-12": [(partial(clusters.run, h2o="future"), CLUSTERS)],
    "pyramidkv-2024-06": [(partial(clusters.run, h2o="window", more=1), CLUSTERS)],
    "snapkv": [(clusters.run, "snapkv/monkeypatch/snapkv_utils.py")],
    "h2o": [(h2o.run, "h2o_hf/utils_real_drop/modify_llama.py")],
    "simlayerkv": [
        (simlayerkv.run, "LongBench/SimLayerKV_llama.py"),
        (minicache.run, "LongBench/SimLayerKV_llama.py"),
    ],
    "kivi": [(kivi.run, "models/llama_kivi.py")],
    "think": [(think.run, "ThinK_flash/src/kv_pruning_utils.py")],
    "quest": [(quest.run, "evaluation/quest_attention.py")],
    "r-kv": [(rkv.run, "rkv/compression/r1_kv.py")],
    "adakv": [(heads.adakv, "adaptive_snapkv/monkeypatch/snapkv_utils.py")],
    "cake": [(cake.run, "cake/model/modify_llama.py")],
    "lava": [(lava.run, "adaptive_snapkv/monkeypatch/adaptive_mistral_hijack_lava.py")],
    "headkv": [(heads.headkv, "headkv/snapkv_utils.py")],
    "kvzip": [(kvzip.run, "model/wrapper.py"), (kvzip_heads.run, "model/wrapper.py")],
    "kvpress": [
        (blocks.run, "kvpress/presses/block_press.py"),
        (cur.run, "kvpress/presses/cur_press.py"),
        (chunks.run, "kvpress/presses/chunkkv_press.py"),
        (leverage.run, "kvpress/presses/leverage_press.py"),
        (compactor.run, "kvpress/presses/compactor_press.py"),
        (kvcompose.run, "kvpress/presses/kvcompose_press.py"),
        (rerotation.run, "kvpress/presses/key_rerotation_press.py"),
        (finch.run, "kvpress/presses/finch_press.py"),
        (threshold.run, "kvpress/presses/dms_press.py"),
    ],
    "nacl": [(nacl.run, "NLP/ACL2024-NACL/src/llama_nacl_patch.py")],
    "triattention": [(triattention.run, "triattention/methods/pruning_utils.py")],
    "attention-matching": [(attention_matching.run, "compaction/algorithms/base.py")],
    "rocketkv": [(rocketkv.run, "gpt-fast/rocket.py")],
    "omnikv": [(omnikv.run, "modeling/omnikv.py")],
    "kvquant": [(kvquant.run, "quant/kvquant/simquant_module_quantizer.py")],
    "gear": [(gear.run, "GenerationBench/GenerationTest/GEARLM/Simulated/compress_function.py")],
    "kvtc": [(kvtc.run, "src/quantize.py")],
    "palu": [(low_rank.palu, "palu/model/modules/svd_linear.py")],
    "xkv": [(low_rank.xkv, "xKV/customized_cache/fake_layer_merge_dynamic_cache.py")],
    "pyramidinfer": [(pyramidinfer.run, "models/modeling_llama_pyramidinfer.py")],
}


def checkouts(arguments: list[str]) -> Iterator[tuple[str, Path]]:
    for argument in arguments:
        project, _, path = argument.partition("=")
        if project not in PROJECTS or not path:
            raise SystemExit(f"{argument!r} is not PROJECT=PATH with a project of {', '.join(PROJECTS)}")
        yield project, Path(path)


def show(row: Agreement) -> None:
    counts = {"equal": row.equal, "ties": row.ties, "rounding": row.rounding, "dtype": row.dtype_rounding}
    verdicts = ", ".join(f"{name} {count}" for name, count in {**counts, "different": row.different}.items())
    print(row.project, row.function, row.kvbench, row.dtype, row.tensors, f"{row.cases} cases", sep=" | ")
    print(f"    {row.compared} {row.unit}: {verdicts}; gap {row.largest_gap:.1e}, overlap {row.overlap:.2f}")
    for example in row.examples:
        print(f"    {example}", flush=True)


@torch.inference_mode()
def main() -> None:
    parser = script_parser(__doc__)
    parser.add_argument("checkouts", nargs="+", metavar="PROJECT=PATH", help=", ".join(PROJECTS))
    parser.add_argument("--out", type=Path, help="a JSON file for the rows; those of other projects in it stay")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for project, path in checkouts(arguments.checkouts):
        for run, file in PROJECTS[project]:
            for row in run(project, path, file):
                show(row)
                rows.append(asdict(row))
    if arguments.out:
        write(arguments.out, rows)


def write(path: Path, rows: list[dict]) -> None:
    made = {row["project"] for row in rows}
    earlier = json.loads(path.read_text())["rows"] if path.exists() else []
    rows = [row for row in earlier if row["project"] not in made] + rows
    rows.sort(key=lambda row: list(PROJECTS).index(row["project"]))
    versions = {name: version(name) for name in ("kvbench", "torch", "transformers")}
    path.write_text(json.dumps({"versions": versions, "rows": rows}, indent=1) + "\n")
    table(rows)


def table(rows: list[dict]) -> None:
    """Markdown: one line for each released function and unit, the counts of its dtypes beside each other."""
    print("\n| released code | kvbench | | float32: equal, ties | 16 bit: equal, ties, dtype rounding | different |")
    print("|---|---|---|---|---|---|")
    lines: dict[tuple, dict] = {}
    for row in rows:
        name = f"{row['project']} {row['commit']}: `{row['function']}`"
        line = lines.setdefault(
            (name, row["kvbench"], row["unit"]), {"wide": [0] * 3, "short": [0] * 4, "different": 0}
        )
        counts = line["wide" if row["dtype"] == "float32" else "short"]
        for at, key in enumerate(("compared", "equal", "ties", "dtype_rounding")[: len(counts)]):
            counts[at] += row[key] + (row["rounding"] if key == "ties" else 0)
        line["different"] += row["different"]
    for (name, method, unit), line in lines.items():
        wide, short = (
            f"{', '.join(f'{c:,}' for c in cs[1:])} of {cs[0]:,}" if cs[0] else ""
            for cs in (line["wide"], line["short"])
        )
        print(f"| {name} | {method} | {unit} | {wide} | {short} | {line['different']:,} |")


if __name__ == "__main__":
    main()
