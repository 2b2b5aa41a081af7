"""kvbench on a GPU, in under ten minutes and offline: is it right, what does it hold, how fast is it?

    python -m scripts.benchmarks.gpu_check                 # make gpu
    python -m scripts.benchmarks.gpu_check --dry-run       # the same rows on a tiny model, on any machine

Three stages, each of which ends with a verdict:

right, 3 minutes. One preset of each combination of classes compresses and decodes on the GPU, in float32, and from a
    copy of the same tensors on the CPU: kept sets and tokens must be equal, and nearly so what a further token attends
    to. On the way, in float32 and in bfloat16, every operator's kernel is compared with its torch reference in float32
    on the CPU. The same with the heads of most models, in float16 too; a batch of settings against each alone; FullKV's
    tokens against those of transformers' generate, also with weights in 4 bits where bitsandbytes is installed.
fast, 3 minutes. Prefill, compression, decoding step by step, by a CUDA graph and by fused layers (with the kernels' own
    time beside it), a batch of twelve and the largest batch (counted from free memory) of model=llama3-8b-random at 8k
    and 32k tokens, beside FullKV and transformers' generate.
long, the rest. The same at 128k tokens; attention over 8k, 32k and 128k tokens against references that go through the
    keys in slices; the allocator's bytes of the caches against the bytes that they count; a second GPU, where there is
    one; head_dim 64 to 256 with 1 to 16 query heads of a KV head; the other presets. Operators that no preset called
    are listed.

Rows of one kind share a process, until one of them ends it. What a row found is kept in results/gpu/NAME/rows, and the
same command continues where the time was up; a row that took too long or ran out of memory is tried again. The time
that kernels take to compile is no part of a row's limit. Exit code 0: all is as it should be; 1: something failed, see
the list; 3: nothing failed, rows are left.
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
from scripts.benchmarks.gpu.rows import WORK, Check, Stage, stages_of
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
    verdicts = [verdict(stage, rows, clock) for stage in stages_of(check)]
    complete = set(check.names) >= set(NAMES) and not any(name.startswith(OF_OPERATORS) for name in rows.left)
    result = {
        "machine": machine,
        "dry_run": options.dry_run,
        "stages": verdicts,
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


def verdict(stage: Stage, rows: Rows, clock: Clock) -> str:
    """Run a stage's rows, with the time that stages before it did not need, and say how they ended."""
    before = {*rows.found}, len(rows.left), clock.all_left()
    clock.stage(60 * stage.minutes + clock.left_over)
    rows.run(stage.rows(clock.left()))
    clock.left_over = clock.left()
    made = {name: one for name, one in rows.found.items() if name not in before[0]}
    failed, left = judge.failures(made, complete=False), len(rows.left) - before[1]
    how = f"{len(failed)} failures" if failed else "nothing failed"
    line = f"{stage.name}: {how}, {len(made)} rows, {left} left, {before[2] - clock.all_left():.0f} s"
    print(line, *(f"  {one}" for one in failed), sep="\n", flush=True)
    return line


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
