"""kvbench on a GPU, in under ten minutes and offline: is it right, what does it hold, how fast is it?

    python -m scripts.benchmarks.gpu_check                 # make gpu
    python -m scripts.benchmarks.gpu_check --dry-run       # the same rows on a tiny model, on any machine

1. Every preset compresses and decodes on the GPU, in float32, and from a copy of the same tensors on the CPU: kept
   sets and tokens must be equal, and nearly so what a further token attends to. On the way, in float32 and in bfloat16,
   every operator's kernel is compared with its torch reference in float32 on the CPU; operators that no preset called
   are listed.
2. The same for head_dim 64 to 256 and 1 to 16 query heads of a KV head, in float16 too.
3. A batch of settings against each alone; a second GPU, where there is one, against the CPU.
4. Attention over 8k, 32k and 128k tokens against references that go through the keys in slices.
5. The allocator's bytes of the caches, against the bytes that they count.
6. Prefill, compression, decoding (with the kernels' own time beside it), a batch of twelve and the largest batch
   (counted from free memory) of model=llama3-8b-random at these lengths, beside FullKV and transformers' generate.

Each row is a process of its own. What a row found is kept in results/gpu/NAME/rows: the same command continues where
the time was up. Exit code 0: all is as it should be; 1: something failed, see the list; 3: nothing failed, rows are
left.
"""

import argparse
import json
import re
import sys
from pathlib import Path

import torch

from kvbench.evaluation.speed.conditions import conditions
from kvbench.utils.environment import environment, now
from scripts.benchmarks.gpu import judge, report
from scripts.benchmarks.gpu.processes import Row, Rows
from scripts.benchmarks.gpu.rows import WORK, Check, rows_of, speeds_of
from scripts.benchmarks.gpu.stages import Clock
from scripts.frame import script_parser
from tests.support.config import NAMES

MINUTES = 9.5
FAILED, LEFT = 1, 3  # exit codes
OF_OPERATORS = ("preset", "heads")


def main() -> int:
    options = arguments()
    check = Check(options.dry_run, tuple(options.presets))
    if not options.dry_run and not torch.cuda.is_available():
        sys.exit("there is no CUDA GPU here: --dry-run tries the rows on a tiny model")
    clock = Clock(options.minutes)
    before = conditions()
    machine = machine_of(check, options.out, clock)
    folder = options.out / (options.name or folder_name(machine["name"]))
    rows = Rows(folder / "rows", machine | {"dry_run": options.dry_run}, clock)
    rows.run(rows_of(check))
    rows.run(speeds_of(check, clock.all_left()))
    complete = set(check.names) >= set(NAMES) and not any(name.startswith(OF_OPERATORS) for name in rows.left)
    result = {
        "machine": machine,
        "dry_run": options.dry_run,
        "failed": judge.failures(rows.found, complete),
        "left": rows.left,
        "rows": rows.found,
        "conditions": [before, conditions()],
        "ended": now(),
        "environment": environment(),
    }
    path = report.write(result, folder)
    (folder / "results.json").write_text(json.dumps(result, indent=1, default=str) + "\n", encoding="utf-8")
    print(path.read_text(encoding="utf-8"))
    print(path)
    return FAILED if result["failed"] else LEFT if rows.left else 0


def arguments() -> argparse.Namespace:
    parser = script_parser(__doc__)
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[2] / "results" / "gpu")
    parser.add_argument("--name", help="the folder's name; else the GPU's")
    parser.add_argument("--minutes", type=float, default=MINUTES)
    parser.add_argument("--presets", nargs="*", default=NAMES, help="files of conf/method; all")
    parser.add_argument("--dry-run", action="store_true", help="a tiny model and short prompts")
    return parser.parse_args()


def machine_of(check: Check, out: Path, clock: Clock) -> dict:
    """The machine and the code, on which results depend; asked anew by every run."""
    asked = Rows(out / "rows", {"asked": now()}, clock)
    asked.run([Row("machine", f"{WORK}machine", (check,), 120)])
    return asked.found["machine"]


def folder_name(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


if __name__ == "__main__":
    sys.exit(main())
