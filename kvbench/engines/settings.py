"""Settings of engines: one for each combination of the values that a configuration lists."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

from kvbench.configuration.conf import choices
from kvbench.engines.base import Engine
from kvbench.errors import UserError
from kvbench.records.identity import engine_key
from kvbench.utils.targets import DESCRIBING, Find, build, imported


@dataclass(frozen=True)
class EngineSetting:
    """One configuration of an engine, instead of a method's setting."""

    engine: Engine
    ratio: None = None
    budget: None = None

    @property
    def label(self) -> str:
        assert self.engine.label is not None, "an engine names itself when it is built"
        return self.engine.label

    @property
    def name(self) -> str:
        return self.label

    @property
    def parameters(self) -> str:
        """The connected engine's configuration and its description of itself, as canonical JSON."""
        return json.dumps({**self.engine.parameters, **self.engine.about}, sort_keys=True)

    @property
    def key(self) -> str:
        """Everything that a record depends on besides sample and model."""
        return engine_key(self.label, self.parameters)


def engine_settings(node: Mapping[str, Any], find: Find = imported) -> list[EngineSetting]:
    """The settings of a configuration's `engine` node: every combination of the values that its keys list.

    The last key's values change fastest. `label` has a name for each combination. `find` resolves names of classes.
    Raises UserError for a wrong value.
    """
    values = {key: value for key, value in node.items() if key not in DESCRIBING}
    labels = values.pop("label", None)
    lists = {key: value if isinstance(value, list) else [value] for key, value in values.items()}
    if empty := [key for key, value in lists.items() if not value]:
        raise UserError(f"engine.{empty[0]}=[] leaves nothing to run")
    combinations = [dict(zip(lists, combination, strict=True)) for combination in product(*lists.values())]
    names = labels if isinstance(labels, list) else [labels]
    if labels is not None and len(names) != len(combinations):
        raise UserError(
            f"engine.label has {len(names)} names for {len(combinations)} settings: the lists of engine.* make every "
            "combination of their values"
        )
    names = names if labels is not None else [None] * len(combinations)
    settings = [
        EngineSetting(build({**combination, "label": name}, "engine", Engine, find))
        for combination, name in zip(combinations, names, strict=True)
    ]
    for engine in (setting.engine for setting in settings):
        if engine.label is None:
            raise UserError(f"{type(engine).__name__} has no label when it is built: it must give itself a name")
    seen: set[str] = set()
    for setting in settings:
        if (method := setting.label.partition(" ")[0]) in choices("method"):
            raise UserError(f"engine.label={setting.label!r} begins with the name of a method: {method!r}")
        if setting.label in seen:
            raise UserError(f"two settings of engine= are called {setting.label!r}: name them by engine.label=[…]")
        seen.add(setting.label)
    return settings
