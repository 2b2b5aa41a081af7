"""How far are engines from each other, and what do their cache types cost? `python scripts/engines.py`

kvbench's FullKV in float32 and llama.cpp with f16, q8_0 and q4_0 answer the same needles on the embedded model. The
table, how many answers have FullKV's tokens, and what computed them go to results/engines (--out names another folder).
Records stay in runs/engines, so a stopped run goes on where it was. `make engines` installs llama.cpp.
"""

import argparse
import json
import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import pandas as pd

from kvbench.config import composed
from kvbench.records import load
from kvbench.records.manifest import read_manifests
from kvbench.runner import run as command

ROOT = Path(__file__).parents[1]
TYPES = ("f16", "q8_0", "q4_0")
KEPT = "started settings records wall_seconds kvbench git engines packages hardware model data_sha256".split()


def needles(options: argparse.Namespace) -> list[list[str]]:
    """The overrides of each run over the same samples."""
    samples = ["benchmark=niah", f"benchmark.lengths={options.lengths}", f"benchmark.depths={options.depths}"]
    shared = [*samples, f"benchmark.seeds={options.seeds}", f"output_dir={options.records}"]
    llama = ["engine=llama_cpp", f"engine.k=[{','.join(TYPES)}]", "distance=true"]
    llama += [f"engine.threads={options.threads}"] * (options.threads is not None)
    llama += [f"engine.python={options.llama}"] * (options.llama is not None)
    return [[*shared, "method=full"], [*shared, *llama]]


def agreement(folder: Path) -> pd.DataFrame:
    """For each setting how many answers have exactly FullKV's tokens."""
    records = load(folder)
    full = records[records["method"] == "full"].set_index("sample")["tokens"]
    equal = [tokens == full[sample] for tokens, sample in zip(records["tokens"], records["sample"], strict=True)]
    by_setting = records.assign(equal=equal).groupby("setting", sort=False)["equal"]
    return by_setting.agg(samples="count", equal_answers="sum").reset_index()


def provenance(folder: Path) -> list[dict]:
    """Of each run that made records: code, engines, packages, machine and samples, without the machine's paths."""
    manifests, _ = read_manifests(folder)
    return [{name: one[name] for name in KEPT if name in one} for one in manifests.values() if one.get("records")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", default="[1024,2048]", help="tokens, as benchmark.lengths")
    parser.add_argument("--depths", default="[0,25,50,75,100]", help="per cent, as benchmark.depths")
    parser.add_argument("--seeds", type=int, default=6, help="needles for each length and depth")
    parser.add_argument("--threads", type=int, help="of llama.cpp; as many as cores if it is not given")
    parser.add_argument("--llama", help="the environment with llama-cpp-python, if not .venv-llama")
    parser.add_argument("--records", default="runs/engines", help="folder of the records")
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "engines")
    options = parser.parse_args()
    for overrides in needles(options):
        folder = command.run(composed(overrides))
    options.out.mkdir(parents=True, exist_ok=True)
    for file in ("table.md", "table.csv"):
        shutil.copy(folder / file, options.out / file)
    agreement(folder).to_csv(options.out / "agreement.csv", index=False)
    (options.out / "provenance.json").write_text(json.dumps(provenance(folder), indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
