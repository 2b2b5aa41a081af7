"""What `kvbench --help` says of the parts of methods, and of metrics: where a file says nothing, its class does."""

import json
from collections.abc import Mapping
from pathlib import Path

from kvbench.configuration.conf import choices, options, parent, stated, stated_values
from kvbench.utils.class_docstrings import first_paragraph, first_paragraphs
from kvbench.utils.plugins import declared
from kvbench.utils.targets import DESCRIBING, SPECIAL, TARGET

NO_KEYS = {*DESCRIBING, *SPECIAL, "defaults"}
_PACKAGE = Path(__file__).parents[1]


def parts(group: str) -> dict[str, str]:
    """The choices of a group of parts, each with a line about it and its keys with their values."""
    abouts, targets = options(group), stated(group, TARGET)
    texts = {}
    for name in choices(group):
        above = parent(group, name)
        text = abouts[name] or (f"as {above}" if above and not targets[name] else _of_class(targets[name]))
        texts[name] = "; ".join(filter(None, (text, ", ".join(_keys(stated_values(group, name))))))
    return texts


def _keys(values: Mapping[str, object]) -> list[str]:
    """The keys of a class with their values, as on the command line."""
    of_class = ((key, value) for key, value in values.items() if key not in NO_KEYS)
    return [f"{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in of_class]


def _of_class(target: str) -> str:
    """What the docstring of one of kvbench's own classes says first; nothing of another class is read."""
    package, *folders, name = target.split(".")
    return first_paragraphs(_PACKAGE.joinpath(*folders)).get(name, "") if package == _PACKAGE.name else ""


def metrics() -> dict[str, str]:
    """The metrics of own prompts, kvbench's and those of plug-ins, with a line about each."""
    from kvbench.metrics.answers import METRICS  # here, since the overview does without

    own = {name: first_paragraph(function.__doc__) for name, function in METRICS.items()}
    return own | {name: str(entry["about"]) for name, entry in declared("metric", METRICS).items()}
