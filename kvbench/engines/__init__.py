"""Other engines that answer kvbench's prompts: over HTTP, or as a worker process in a separate environment.

The classes of all files below can be imported from here by name; `X as X` marks a name as public.
"""

from typing import Any

from kvbench.engines.base import Completion as Completion
from kvbench.engines.base import Engine as Engine
from kvbench.engines.base import Question as Question
from kvbench.engines.base import Session as Session
from kvbench.utils.classes_by_name import class_below, places


def __getattr__(name: str) -> Any:
    return class_below(__name__, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *places(__name__)})
