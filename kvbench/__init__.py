"""kvbench: compare KV-cache compression methods on the same prompts, budgets and bytes.

`kvbench.compress` and `kvbench.CompressedCache` run the same methods in transformers' `generate`.
"""

from importlib import import_module

__version__ = "0.2.0"
__all__ = ["CompressedCache", "__version__", "compress"]


def __getattr__(name: str) -> object:
    """Names of kvbench.integrations.generate, imported when they are used: the command line does not wait for torch."""
    if name in ("CompressedCache", "compress"):
        return getattr(import_module("kvbench.integrations.generate"), name)
    raise AttributeError(f"module 'kvbench' has no attribute {name!r}")
