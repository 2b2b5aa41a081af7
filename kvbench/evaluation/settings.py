"""Settings: a method with its ratio or budget and its parameters; what a row of a table is."""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kvbench.config import build
from kvbench.errors import UserError
from kvbench.methods import Dense, FullKV, Method
from kvbench.utils.validation import is_number

DEFAULT_RATIOS = (0.2, 0.4)
# Classes that have moved, by the name that is part of a record's key: records of earlier versions are found again.
RECORDED_AS = {"kvbench.integrations.kvpress.KVPress": "kvbench.guests.kvpress.KVPress"}


@dataclass(frozen=True)
class Setting:
    """One method at one ratio (share of FullKV's tokens) or budget (tokens per layer and head)."""

    name: str
    method: Method
    parameters: str  # the method's configuration as canonical JSON
    ratio: float | None = None
    budget: int | None = None

    @property
    def label(self) -> str:
        """Unique in a run, short enough for a figure."""
        if self.budget is not None:
            return f"{self.name} {self.budget}"
        return self.name if self.ratio is None else f"{self.name} {self.ratio:g}"

    @property
    def key(self) -> str:
        """What the outcome depends on besides sample and model; and the name, which tables go by."""
        return json.dumps([self.name, self.parameters, self.ratio, self.budget])

    def asked(self, n: int) -> int | float:
        """Tokens per layer and head that the ratio or budget stands for, at a prompt of n tokens."""
        if self.budget is not None:
            return self.budget
        if self.method.takes_fractions and self.ratio is not None:
            return self.ratio * n
        return n if self.ratio is None else math.floor(self.ratio * n + 1e-9)  # 1e-9: float noise on integers

    def tokens(self, n: int, num_layers: int) -> int | float:
        """`asked`, but never below what the method can bring such a prompt to."""
        return max(self.asked(n), self.method.floor(n, num_layers))


def build_settings(methods: Mapping[str, Mapping], ratio: object, budget: object) -> list[Setting]:
    """Every method at every ratio or budget, its own where its configuration names some; FullKV once.

    UserError names a bad value.
    """
    asked = ratios_or_budgets(ratio, budget)
    return [setting for name, config in named(methods).items() for setting in settings_of(name, {**config}, asked)]


def settings_of(name: str, config: dict, asked: tuple[list[float], list[int]]) -> list[Setting]:
    """One method at its own ratios or budgets, or at those asked of all."""
    config.pop("about", None)
    own = (config.pop("ratio", None), config.pop("budget", None))
    method = build(config, f"method {name!r}")
    if not isinstance(method, Method):
        raise UserError(f"method {name!r}: {config['_target_']} is not a subclass of kvbench.methods.Method")
    name, parameters = method.title(name), json.dumps(as_recorded(config), sort_keys=True)
    if not method.takes_budget:
        if own != (None, None):
            raise UserError(f"method {name!r} takes neither ratio nor budget")
        return [Setting(name, method, parameters)]
    ratios, budgets = asked if own == (None, None) else ratios_or_budgets(*own)
    for value in budgets:
        if value < method.minimum_budget:
            raise UserError(
                f"budget {value} is too small for {name!r}: it always keeps {method.minimum_budget - 1} "
                f"tokens (window or sinks), so at least {method.minimum_budget} are needed"
            )
    return [
        *(Setting(name, method, parameters, ratio=r) for r in ratios),
        *(Setting(name, method, parameters, budget=b) for b in budgets),
    ]


def as_recorded(config: Mapping) -> dict:
    """A method's configuration under the names that records have for its classes."""
    return {**config, "_target_": RECORDED_AS.get(config["_target_"], config["_target_"])}


def ratios_or_budgets(ratio: object, budget: object) -> tuple[list[float], list[int]]:
    """Lists of which one is empty; the default ratios where neither is given."""
    if ratio is not None and budget is not None:
        raise UserError(f"ratio={ratio} and budget={budget} exclude each other: give one")
    if budget is not None:
        return [], check_budgets(budget)
    return check_ratios(DEFAULT_RATIOS if ratio is None else ratio), []


def named(methods: Mapping) -> dict[str, Mapping]:
    """The configured methods by name; with `method._target_=module.Class` that class too, under its own name.

    Plain values beside the `_target_` are the class's arguments.
    """
    chosen = {name: value for name, value in methods.items() if isinstance(value, Mapping)}
    inline = {key: value for key, value in methods.items() if not isinstance(value, Mapping)}
    if target := inline.get("_target_"):
        chosen[target.rpartition(".")[2]] = inline
    elif extra := set(inline) - {"_target_"}:
        raise UserError(f"method.{sorted(extra)[0]}= needs method._target_=module.Class, or method.NAME.KEY=")
    return chosen


def check_ratios(value: object) -> list[float]:
    """One or many ratios, each in (0, 1]."""
    ratios = _as_list(value)
    for ratio in ratios:
        if not is_number(ratio) or not 0 < ratio <= 1:
            raise UserError(
                f"ratio {ratio!r} is outside (0, 1]: it is the share of FullKV to keep, "
                "for example 0.2 (budget= takes tokens)"
            )
    return list(dict.fromkeys(float(ratio) for ratio in ratios))


def check_budgets(value: object) -> list[int]:
    """One or many budgets, each a positive number of tokens."""
    budgets = _as_list(value)
    for budget in budgets:
        if isinstance(budget, bool) or not isinstance(budget, int) or budget < 1:
            raise UserError(
                f"budget {budget!r} is not a positive whole number of tokens per layer (ratio= takes a share of FullKV)"
            )
    return list(dict.fromkeys(budgets))


def _as_list(value: object) -> list:
    values = list(value) if isinstance(value, Iterable) and not isinstance(value, str) else [value]
    if not values:
        raise UserError("an empty list of ratios or budgets leaves nothing to run")
    return values


def is_full(setting: Setting) -> bool:
    """Whether every token is kept as it is; what only changes the storage of all tokens is a method of its own."""
    return type(setting.method) is FullKV and type(setting.method.storage) is Dense
