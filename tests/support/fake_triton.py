"""Triton for a GPU that is not there: launches are recorded with what they would compile, and compute nothing.

    with FakeTriton() as gpu:
        quantise(x, 4, 32, 2)  # a kernel, on tensors of the device "meta" or of fake devices
    gpu.launches, gpu.compilations

What is compiled anew, and for which types, constants and alignments, is decided by Triton's own code.
"""

from collections.abc import Callable
from dataclasses import dataclass
from unittest.mock import patch

from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

OPTIONS = ("num_warps", "num_stages", "enable_fp_fusion", "maxnreg")
OPTIONS_OF_AMD = ("num_warps", "num_stages")
MOST_PROGRAMS = (2**31 - 1, 65535, 65535)  # of a grid, in each dimension, on NVIDIA's GPUs


@dataclass(frozen=True)
class Launch:
    kernel: str
    grid: tuple[int, int, int]
    device: int  # that was the current one


@dataclass(frozen=True)
class Compilation:
    """What Triton compiles for one launch."""

    kernel: JITFunction
    signature: dict[str, str]
    constants: dict
    attributes: dict
    options: dict

    @property
    def name(self) -> str:
        return f"{self.kernel.fn.__module__.rpartition('.')[2]}.{self.kernel.fn.__name__}"

    def key(self) -> str:
        """Equal for equal code."""
        return repr((self.name, self.signature, self.constants, self.attributes, self.options))


def target_of(sm: int | str) -> GPUTarget:
    return GPUTarget("cuda", sm, 32) if isinstance(sm, int) else GPUTarget("hip", sm, 64)


class FakeTriton:
    """Within this context Triton's driver is this one; `current` tells the number of the current GPU.

    sm: the architecture, a number for NVIDIA's and a name for AMD's (CDNA, with wavefronts of 64).
    """

    def __init__(self, current: Callable[[], int] = lambda: 0, sm: int | str = 90):
        self.get_current_device, self.sm = current, sm
        self.launches: list[Launch] = []
        self.compilations: list[Compilation] = []

    def get_current_stream(self, device: int) -> int:
        return device

    def get_current_target(self) -> GPUTarget:
        return target_of(self.sm)

    def __enter__(self) -> "FakeTriton":
        def compiles(kernel, key, signature, device, constants, options, attributes, warmup):
            names = OPTIONS if self.get_current_target().backend == "cuda" else OPTIONS_OF_AMD
            chosen = {name: getattr(options, name) for name in names}
            one = Compilation(kernel, signature, constants, attributes, chosen)
            self.compilations.append(one)
            made = kernel.device_caches[device][0][key] = _Compiled(one.name, self.launches)
            return made

        self.patches = [patch.object(driver, "_active", self), patch.object(JITFunction, "_do_compile", compiles)]
        for each in self.patches:
            each.start()
        return self

    def __exit__(self, *error) -> None:
        for each in self.patches:
            each.stop()
        for one in self.compilations:
            one.kernel.device_caches.clear()


class _Compiled:
    """What stands for a compiled kernel: it notes its launches."""

    function, packed_metadata = 0, ()

    def __init__(self, name: str, launches: list[Launch]):
        self.name, self.launches = name, launches

    def launch_metadata(self, grid, stream, *args) -> None:
        return None

    def run(self, x: int, y: int, z: int, stream: int, *args) -> None:
        self.launches.append(Launch(self.name, (x, y, z), stream))
