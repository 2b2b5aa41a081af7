"""BABILong: the official verdicts on the answers of its repository, and its prompts."""

import csv
from collections.abc import Iterator
from pathlib import Path

from kvbench.benchmarks.babilong import prompts
from kvbench.metrics import babilong as metric
from scripts.compare.parity.checkout import load


def run(root: Path) -> Iterator[tuple[str, int, int]]:
    official = load(root, "babilong/metrics.py")
    csv.field_size_limit(10**9)
    files = sorted(root.glob("babilong_evals/*/*/*.csv"))
    count = different = 0
    for file in files:
        task = file.name.split("_")[0]
        with file.open(encoding="utf-8", newline="") as lines:
            for row in csv.DictReader(lines):
                asked = row["target"], row["output"], row["question"]
                wanted = official.compare_answers(*asked, official.TASK_LABELS[task])
                different += wanted != metric.score(task, row["output"], row["target"], row["question"])
                count += 1
    yield f"verdicts on the answers of {len(files)} files", count, different
    official = load(root, "babilong/prompts.py")
    ours = prompts.load(prompts.SHA256, str(root / "babilong" / "prompts.py"))
    row = ("\n A {context} with {question}, 'quotes' and ’these’.\n", "Where is {Mary}? ")
    different = 0
    for task, parts in official.DEFAULT_PROMPTS.items():
        wanted = official.get_formatted_input(*row, parts["examples"], parts["instruction"], parts["post_prompt"])
        different += wanted != ours[task].fill(*row)[0]
    yield "prompts", len(ours), different
