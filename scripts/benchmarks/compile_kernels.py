"""Compiles every Triton kernel for GPUs that this machine need not have, and writes what it takes of them.

    PYTHONPATH=.triton/3.9.0 python -m scripts.benchmarks.compile_kernels
    PYTHONPATH=.triton/3.9.0 python -m scripts.benchmarks.compile_kernels --sm 90 --head-dim 128 --group 4

Written to results/benchmarks/compiled_kernels.json: for each version of Triton, architecture and shape of heads, each
kernel's most registers of a thread, spilled bytes of a thread and bytes of shared memory of a block, over all forms in
which operators launch it, or the error of the compiler. What the file has is not compiled again. All of it takes hours.
"""

import itertools
import json
from pathlib import Path

import torch
import triton

from kvbench.utils.files import write_atomically
from scripts.frame import script_parser
from tests.support.fake_triton import FakeTriton
from tests.support.kernel_calls import Shape, calls
from tests.support.kernels import SHARED, resources_of

FILE = Path(__file__).parents[2] / "results" / "benchmarks" / "compiled_kernels.json"
DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}


def main() -> None:
    parser = script_parser(__doc__)
    parser.add_argument("--sm", type=int, nargs="*", default=list(SHARED))
    parser.add_argument("--head-dim", type=int, nargs="*", default=[64, 80, 96, 128, 256])
    parser.add_argument("--group", type=int, nargs="*", default=[1, 4, 8, 16], help="query heads of a KV head")
    parser.add_argument("--dtype", nargs="*", default=list(DTYPES), choices=list(DTYPES))
    options = parser.parse_args()
    by_version = json.loads(FILE.read_text(encoding="utf-8")) if FILE.is_file() else {}
    shapes, known = by_version.setdefault(triton.__version__, {}), {}
    for sm, head_dim, dtype, group in itertools.product(options.sm, options.head_dim, options.dtype, options.group):
        name = f"sm_{sm}, head_dim {head_dim}, {dtype}, group {group}"
        if name not in shapes:
            shapes[name] = compiled(Shape(head_dim, group, DTYPES[dtype]), sm, known)
            write_atomically(FILE, json.dumps(by_version, indent=1) + "\n")
            spilling = {kernel: taken for kernel, taken in shapes[name].items() if taken.get("spills", 1)}
            print(name, *(f"{kernel}: {taken}" for kernel, taken in spilling.items()), sep="\n  ")


def compiled(shape: Shape, sm: int, known: dict[tuple[int, str], dict]) -> dict[str, dict]:
    """For each kernel the most resources that any of its launches takes; `known` holds earlier compilations."""
    with FakeTriton(sm=sm) as gpu:
        for _, call in calls(shape):
            call()
    most: dict[str, dict] = {}
    for compilation in gpu.compilations:
        at = (sm, compilation.key())
        if at not in known:
            try:
                known[at] = resources_of(compilation, sm)
            except Exception as error:  # the compiler's own: the table names it
                known[at] = {"error": f"{type(error).__name__}: {str(error).splitlines()[0]}"}
        before = most.get(compilation.name, {})
        most[compilation.name] = before | {key: max(value, before.get(key, value)) for key, value in known[at].items()}
    return most


if __name__ == "__main__":
    main()
