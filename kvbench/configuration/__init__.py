"""The configuration of a command: composed from conf/ and overrides, parsed once, and then a typed object.

Importing this needs neither torch nor transformers, and pydantic only once a name is used: help does without.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvbench.configuration.compose import configured, resolved
    from kvbench.configuration.configuration import Configuration
    from kvbench.configuration.experiment import Experiment
    from kvbench.configuration.model_spec import ModelSpec

__all__ = ["Configuration", "Experiment", "ModelSpec", "configured", "resolved"]

_LAZY = {
    "Configuration": "configuration",
    "Experiment": "experiment",
    "ModelSpec": "model_spec",
    "configured": "compose",
    "resolved": "compose",
}


def __getattr__(name: str) -> object:
    if name in _LAZY:
        return getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
