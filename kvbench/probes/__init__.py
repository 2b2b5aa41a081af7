"""Probes: properties of attention and cache, measured layer by layer during prefill instead of compressing.

The classes of all files below are here by their names; `X as X` says that a name is public.
"""

from typing import Any

from kvbench.probes.base import Observation as Observation
from kvbench.probes.base import Probe as Probe
from kvbench.probes.base import build_probes as build_probes
from kvbench.utils.classes_by_name import class_below, places


def __getattr__(name: str) -> Any:
    return class_below(__name__, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *places(__name__)})
