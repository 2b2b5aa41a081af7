"""kvbench on a GPU, in under ten minutes and offline: is it right, what does it hold, how fast is it?

    python -m scripts.benchmarks.gpu_check                 # make gpu
    python -m scripts.benchmarks.gpu_check --dry-run       # the same rows on a tiny model, on any machine

Four stages, each of which ends with a verdict:

right, 2 minutes. One preset of each combination of classes compresses and decodes on the GPU, in float32, and from a
    copy of the same tensors on the CPU: kept sets and tokens must be equal, and nearly so what a further token attends
    to. On the way, in float32 and in bfloat16, every operator's kernel is compared with its torch reference in float32
    on the CPU. The same with the heads of most models, in float16 too; a batch of settings against each alone; FullKV's
    tokens against those of transformers' generate, also with weights in 4 bits where bitsandbytes is installed.
fast, 3 minutes. Prefill, compression, decoding step by step and by a CUDA graph (with the kernels' own time beside it),
    a batch of twelve and the largest batch (counted from free memory) of model=llama3-8b-random at 8k and 32k tokens,
    beside FullKV and transformers' generate; then decoding by fused layers, as far as the time goes.
long, 2 minutes. Attention over 8k, 32k and 128k tokens against references that go through the keys in slices; the
    bytes that caches ask of the allocator against those that they count; a second GPU, where there is one; speeds at
    128k tokens.
rest. The other presets; head_dim 64 to 256 with 1 to 16 query heads of a KV head; every causal-LM class of transformers
    as a tiny model. Operators that no preset called are listed.

What a stage does not need, the next one has. Rows of one kind share a process, until one of them ends it; rows that
measure no time run in several processes at once. What a row found is kept in results/gpu/NAME/rows, and the same
command continues where the time was up; a row that took too long or ran out of memory is tried again. The time that
kernels take to compile is no part of a row's limit.

Exit code 0: all is as it should be; 1: something failed, see the list; 3: nothing failed, rows are left.
"""

import argparse
import json
import sys
from pathlib import Path

import torch

from kvbench.evaluation.speed.conditions import conditions
from kvbench.utils.environment import environment, now
from kvbench.utils.host import cores
from scripts.benchmarks.gpu import judge, report
from scripts.benchmarks.gpu.processes import Row, Rows
from scripts.benchmarks.gpu.rows import WORK, Check, Stage, stages_of
from scripts.benchmarks.gpu.stages import Clock
from scripts.frame import folder_name, script_parser
from tests.support.config import NAMES

MINUTES = 9.5
FAILED, LEFT = 1, 3  # exit codes
MOST_PROCESSES, CORES_OF_A_PROCESS = 8, 2


def main() -> int:
    options = arguments()
    check = Check(options.dry_run, tuple(options.presets), options.commit)
    if not options.dry_run and not torch.cuda.is_available():
        sys.exit("there is no CUDA GPU here: --dry-run tries the rows on a tiny model")
    clock = Clock(options.minutes)
    before = conditions()
    machine = machine_of(check, options.out, clock)
    folder = options.out / (options.name or folder_name(machine["name"]))
    rows = Rows(folder / "rows", machine | {"dry_run": options.dry_run}, clock, options.processes)
    stages = {stage.name: stage for stage in stages_of(check)}
    verdicts = [verdict(stages[name], rows, clock) for name in options.stages or stages]
    complete = {f"preset/{name}" for name in NAMES} <= {*rows.found}
    result = {
        "machine": machine,
        "dry_run": options.dry_run,
        "stages": verdicts,
        "failed": judge.failures(rows.found, complete),
        "left": rows.left,
        "rows": rows.found,
        "conditions": [before, conditions()],
        "ended": now(),
        "environment": environment() | {"git": machine.get("git")},
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
    made = {name: row for name, row in rows.found.items() if name not in before[0]}
    failed, left = judge.failures(made, complete=False), len(rows.left) - before[1]
    how = f"{len(failed)} failures" if failed else "nothing failed"
    line = f"{stage.name}: {how}, {len(made)} rows, {left} left, {before[2] - clock.all_left():.0f} s"
    print(line, *(f"  {failure}" for failure in failed), sep="\n", flush=True)
    return line


def arguments() -> argparse.Namespace:
    parser = script_parser(__doc__)
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[2] / "results" / "gpu")
    parser.add_argument("--name", help="the folder's name; else the GPU's")
    parser.add_argument("--minutes", type=float, default=MINUTES)
    parser.add_argument("--presets", nargs="*", default=NAMES, help="files of conf/method; all")
    parser.add_argument("--stages", nargs="*", help="some of right, fast, long and rest, in an order of yours")
    parser.add_argument("--processes", type=int, default=processes(), help="at once, for rows that measure no time")
    parser.add_argument("--commit", help="of this code, where it is a copy without .git")
    parser.add_argument("--dry-run", action="store_true", help="a tiny model and short prompts")
    return parser.parse_args()


def processes() -> int:
    """As many as have cores, for each row computes on the CPU, too."""
    return min(MOST_PROCESSES, max(1, (cores() or 1) // CORES_OF_A_PROCESS))


def machine_of(check: Check, out: Path, clock: Clock) -> dict:
    """The machine and the code, on which results depend; asked anew by every run."""
    asked = Rows(out / "rows", {"asked": now()}, clock)
    asked.run([Row("machine", f"{WORK}machine", (check,), 120)])
    return asked.found["machine"]


if __name__ == "__main__":
    sys.exit(main())
