"""kvbench on a GPU, in under nine minutes and offline: is it right, what does it hold, how fast is it?

    python scripts/gpu_check.py                 # make gpu
    python scripts/gpu_check.py --dry-run       # the same stages on a tiny model, on any machine

1. Every preset compresses and decodes on the GPU, in float32, and from a copy of the same tensors on the CPU: kept
   sets, codes and tokens must be equal.
2. On the way every operator's Triton kernel runs beside its torch reference, in float32 and in bfloat16.
3. The allocator's bytes of the caches, against the bytes that they count.
4. Prefill, compression, decoding, a batch of twelve and the largest batch (counted from free memory) of
   model=llama3-8b-random at 8k, 32k and 128k tokens, beside FullKV and transformers' generate.

Each stage has its share of the time; what does not fit is skipped, and the report says so. Written to results/gpu/NAME.
"""

import argparse
import json
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
import transformers

from kvbench.evaluation.speed.conditions import conditions
from kvbench.utils.environment import environment, now
from scripts.gpu import memory, models, presets, report, speed, twins
from scripts.gpu.stages import Clock, attempted
from tests.support.config import NAMES
from tests.support.every_method import setting

MINUTES = 8.5
SHARES = {"presets": 150, "bfloat16": 60, "memory": 20}  # seconds; speed has what is left
LENGTHS = {8192: None, 32768: None, 131072: 16384}  # tokens of the prompt -> prefill.chunk
IN_BYTES = ("full", "snapkv", "pyramidkv", "spindle", "kivi", "minicache")


def main() -> None:
    options = arguments()
    transformers.logging.set_verbosity_error()
    device = "cuda:0" if torch.cuda.is_available() else "cpu"
    if device == "cpu" and not options.dry_run:
        sys.exit("there is no CUDA GPU here: --dry-run tries the stages on a tiny model")
    clock = Clock(options.minutes)
    result = {"machine": machine(device), "dry_run": options.dry_run, "before": conditions()}
    result |= correctness(device, options, clock)
    result["speed"] = speeds(device, options, clock)
    result |= {"after": conditions(), "skipped": clock.skipped, "ended": now(), "environment": environment()}
    folder = options.out / (options.name or folder_name(result["machine"]["name"]))
    path = report.write(result, folder)
    (folder / "results.json").write_text(json.dumps(result, indent=1, default=str) + "\n", encoding="utf-8")
    print(path.read_text(encoding="utf-8"))
    print(path)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "results" / "gpu")
    parser.add_argument("--name", help="the folder's name; else the GPU's")
    parser.add_argument("--minutes", type=float, default=MINUTES)
    parser.add_argument("--presets", nargs="*", default=NAMES, help="files of conf/method; all")
    parser.add_argument("--dry-run", action="store_true", help="a tiny model and short prompts")
    return parser.parse_args()


def correctness(device: str, options: argparse.Namespace, clock: Clock) -> dict:
    """Presets against the CPU, kernels against their references, and bytes."""
    shape, n = (models.TRIAL, 120) if options.dry_run else (models.SMALL, 600)
    cpu = models.llama3_8b("cpu", torch.float32, **shape)
    model = models.llama3_8b(device, torch.float32, **shape)
    model.load_state_dict(cpu.state_dict())
    rows, watched = {}, twins.Twins()
    clock.stage(SHARES["presets"])
    for name in clock.each(options.presets):
        one = setting(name, ratio=presets.RATIO)
        rows[name] = attempted(lambda one=one: presets.preset(one, model, cpu, n))
    for dtype in (torch.float32, torch.bfloat16):
        clock.stage(SHARES["bfloat16"])
        model.to(dtype)
        for name in clock.each(options.presets, name=lambda name, dtype=dtype: f"kernels of {name} in {dtype}"):
            with watched:
                found = attempted(lambda name=name: presets.on_device(setting(name, ratio=presets.RATIO), model, n))
            if "error" in found:
                rows.setdefault(name, {})["error"] = f"{dtype}: {found['error']}"
    clock.stage(SHARES["memory"])
    counted = {
        name: attempted(lambda name=name: memory.bytes_of(setting(name, ratio=presets.RATIO), model, 4 * n))
        for name in clock.each([name for name in IN_BYTES if name in options.presets], name="bytes of {}".format)
    }
    return {"presets": rows, "kernels": twins.compared(watched, torch.device(device)), "memory": counted}


def speeds(device: str, options: argparse.Namespace, clock: Clock) -> list[dict]:
    """A table for each length, as long as there is time: later lengths get what earlier ones left."""
    dtype = torch.float32 if device == "cpu" else torch.bfloat16
    model = models.llama3_8b(device, dtype, **(models.TRIAL if options.dry_run else {}))
    lengths = {300: None, 700: 256} if options.dry_run else LENGTHS
    steps, tables = 8 if options.dry_run else 65, []
    for place, (n, chunk) in enumerate(lengths.items()):
        clock.stage(clock.all_left() / (len(lengths) - place))
        length = speed.Length(model, n, chunk, steps, clock)
        tables.append({"n": n, "chunk": chunk} | attempted(length.table))
    return tables


def machine(device: str) -> dict:
    name = torch.cuda.get_device_name(0) if device != "cpu" else "a CPU"
    total = torch.cuda.get_device_properties(0).total_memory if device != "cpu" else 0
    return {
        "name": name,
        "memory_gib": round(total / 2**30, 1),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "cuda": torch.version.cuda,
    }


def folder_name(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


if __name__ == "__main__":
    main()
