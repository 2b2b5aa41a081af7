"""`benchmark=speed` on the embedded model, its table, bars and numbers kept in a folder with the machine named.

Further arguments are those of `python -m kvbench` and win over the ones here.
"""

import json
import shutil
import sys
from pathlib import Path

import pandas as pd
from hydra import compose, initialize_config_dir

from kvbench.config import CONF
from kvbench.configuration import resolved
from kvbench.runner.run import run
from kvbench.utils.environment import git_commit, hardware, now

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
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = resolved(compose("config", [*SETTINGS, *sys.argv[1:]]))
    folder = run(config)
    kept = KEEP / f"{config.model.name}-{'gpu' if hardware()['gpus'] else 'cpu'}"
    kept.mkdir(parents=True, exist_ok=True)
    for name in ("table.md", "table.csv", "speed.png", "speed.pdf"):
        shutil.copy(folder / name, kept)
    told = {
        "made": now(),
        "git": git_commit(),
        "hardware": hardware(),
        "config": config.benchmark,
        "rows": json.loads(pd.read_csv(kept / "table.csv").to_json(orient="records")),
    }
    (kept / "speed.json").write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    print(kept)


if __name__ == "__main__":
    main()
