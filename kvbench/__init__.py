"""kvbench: compare KV-cache compression methods on the same prompts, budgets and bytes.

`kvbench.run` makes the records that the command line makes and returns them as a data frame. `kvbench.compress` and
`kvbench.CompressedCache` run the same methods in transformers' `generate`.
"""

import signal
import sys
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

from kvbench.utils.release import __version__

if TYPE_CHECKING:
    from kvbench.integrations.generate import CompressedCache, compress
    from kvbench.runner.python_api import run

__all__ = ["CompressedCache", "__version__", "compress", "run"]

_LAZY = {
    "CompressedCache": "kvbench.integrations.generate",
    "compress": "kvbench.integrations.generate",
    "run": "kvbench.runner.python_api",
}

# Windows has neither: one line says so, instead of an ImportError from deep inside.
if find_spec("fcntl") is None or not hasattr(signal, "SIGUSR1"):
    lacking = "file locks (fcntl) and the signals SIGUSR1 and SIGUSR2 are missing here"
    print(f"kvbench: needs a Unix system (Linux, macOS, or WSL on Windows): {lacking}", file=sys.stderr)
    raise SystemExit(2)


def __getattr__(name: str) -> object:
    """The names of _LAZY and `records`, imported when they are used: the command line does not wait for torch."""
    if name == "records":
        return import_module("kvbench.records")
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'kvbench' has no attribute {name!r}")
