"""How far are engines from each other, and what do their cache types cost? `python scripts/engines.py`

kvbench's FullKV in float32 and llama.cpp with f16, q8_0 and q4_0 answer the same needles on the embedded model. Tables
and manifests go to results/engines (--out names another folder); records stay in runs/engines, so a stopped run goes on
where it was. `make engines` installs llama.cpp.
"""

import argparse
import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from kvbench.config import composed
from kvbench.run import run as command

ROOT = Path(__file__).parents[1]
TYPES = ("f16", "q8_0", "q4_0")


def needles(options: argparse.Namespace) -> list[list[str]]:
    """The overrides of each run over the same samples."""
    samples = ["benchmark=niah", f"benchmark.lengths={options.lengths}", f"benchmark.depths={options.depths}"]
    shared = [*samples, f"benchmark.seeds={options.seeds}", f"output_dir={options.records}"]
    llama = ["engine=llama_cpp", f"engine.k=[{','.join(TYPES)}]", "distance=true"]
    llama += [f"engine.threads={options.threads}"] * (options.threads is not None)
    llama += [f"engine.python={options.llama}"] * (options.llama is not None)
    return [[*shared, "method=full"], [*shared, *llama]]


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
    for number, path in enumerate(sorted((folder / "manifests").iterdir()), start=1):
        shutil.copy(path, options.out / f"manifest-{number}.json")


if __name__ == "__main__":
    main()
