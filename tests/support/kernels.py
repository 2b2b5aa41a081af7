"""Triton kernels on a machine without a GPU: compiled for one, for what they take of its registers and memory.

`TRITON_INTERPRET=1`, set before Triton is imported, runs kernels on CPU tensors instead, but compiles none.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.support.fake_triton import Compilation

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
# Bytes of shared memory that a block may have: A100; RTX 30, A10; RTX 40, L4, L40S; H100; B200; RTX 50.
SHARED = {sm: kib * 1024 for sm, kib in {80: 163, 86: 99, 89: 99, 90: 227, 100: 227, 120: 99}.items()}
REGISTERS = 65536  # that a block may have, on all of them; a warp gets them by eights a thread
interpreted = pytest.mark.skipif(not INTERPRETED, reason="needs TRITON_INTERPRET=1")
compiled = pytest.mark.skipif(INTERPRETED, reason="the interpreter compiles nothing")


class Recorded:
    """A kernel that notes its name in `launched` whenever it is launched."""

    def __init__(self, name: str, kernel, launched: list[str]):
        self.name, self.kernel, self.launched = name, kernel, launched

    def __getitem__(self, grid):
        self.launched.append(self.name)
        return self.kernel[grid]


def record_launches(monkeypatch, module, *names: str) -> list[str]:
    """A list that receives the name of each of these kernels of a module when it is launched."""
    launched: list[str] = []
    for name in names:
        monkeypatch.setattr(module, name, Recorded(name, getattr(module, name), launched))
    return launched


def resources_of(one: Compilation, sm: int) -> dict[str, int]:
    """What a launch would compile (see `fake_triton`) takes: registers of a thread, bytes that a thread spills, and
    bytes of shared memory of a block."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    source = ASTSource(fn=one.kernel, signature=one.signature, constexprs=one.constants, attrs=one.attributes)
    compiled = triton.compile(source, target=GPUTarget("cuda", sm, 32), options=one.options)
    tool = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as cubin:
        cubin.write(compiled.asm["cubin"])
        cubin.flush()
        command = [tool, "--dump-resource-usage", cubin.name]
        printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    used = dict(re.findall(r"(\w+):(\d+)", printed))
    return {
        "registers": int(used["REG"]),
        "spills": int(used["STACK"]) + int(used["LOCAL"]),
        "shared": compiled.metadata.shared,
    }
