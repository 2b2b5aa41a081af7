"""`benchmark=speed` on the embedded model, its table, bars and numbers kept in a folder with the machine named.

Further arguments are those of `python -m kvbench` and win over the ones here.
"""

import json
import shutil
from pathlib import Path

import pandas as pd

from kvbench.configuration import configured
from kvbench.runner.run import run
from kvbench.utils.environment import hardware
from scripts.frame import provenance, script_parser, until_stopped, write

KEEP = Path(__file__).parents[2] / "results" / "speed"
SETTINGS = [
    "benchmark=speed",
    "method=[full,h2o,snapkv,kivi,spindle]",
    "ratio=0.4",
    "benchmark.lengths=[512,1536]",
    "benchmark.batches=[1,4]",
    "benchmark.new_tokens=32",
    "benchmark.repeats=3",
]


def main() -> None:
    parser = script_parser(__doc__)
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE")
    options = parser.parse_args()
    with until_stopped():
        config = configured([*SETTINGS, *options.overrides])
        folder = run(config)
    kept = KEEP / f"{config.model.name}-{'gpu' if hardware()['gpus'] else 'cpu'}"
    kept.mkdir(parents=True, exist_ok=True)
    for name in ("table.md", "table.csv", "speed.png", "speed.pdf"):
        shutil.copy(folder / name, kept)
    told = {
        **provenance(),
        "config": config.benchmark,
        "rows": json.loads(pd.read_csv(kept / "table.csv").to_json(orient="records")),
    }
    write(told, kept / "speed.json", indent=1)
    print(kept)


if __name__ == "__main__":
    main()
