"""One method with one ratio or budget, from the arguments of a Python program."""

from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any

import numpy as np

from kvbench.configuration import configured
from kvbench.configuration.amounts import amounts
from kvbench.configuration.conf import choices
from kvbench.errors import UserError, unknown
from kvbench.evaluation.settings import Setting, at_amounts, settings_of
from kvbench.integrations.one_setting import METHOD_KEYS, check_read, one_setting
from kvbench.methods import Method
from kvbench.prefill import FullPrefill

WHO = "a cache in generate"


def setting_of(
    method: str | Method, ratio: float | None = None, budget: int | None = None, overrides: Sequence[str] = ()
) -> Setting:
    """`method` is a name of conf/method or an object; `overrides` are KEY=VALUE of the command line.

    Raises UserError for an unknown name, a bad value, and unless exactly one of ratio and budget is given to a method
    that takes them.
    """
    ratio = _number("ratio", ratio, Real, "a number")
    budget = _number("budget", budget, Integral, "a whole number of tokens")
    if not isinstance(method, str | Method):
        raise UserError(f"method must be a name or an object of a method's class, not {type(method).__name__}")
    if (
        isinstance(overrides, str)
        or not isinstance(overrides, Sequence)
        or not all(isinstance(item, str) for item in overrides)
    ):
        raise UserError(f"overrides={overrides!r} must be a list of KEY=VALUE texts")
    if isinstance(method, Method):
        settings = _of_object(method, ratio, budget, overrides)
    else:
        settings = _of_name(method, ratio, budget, overrides)
    if settings and settings[0].method.takes_budget and (ratio is None) == (budget is None):
        raise UserError(f"method {settings[0].name!r} needs one of ratio= (a share of the prompt) and budget= (tokens)")
    setting = one_setting(settings, WHO)
    if setting.method.ratio_of == "total" and setting.ratio is not None:
        raise UserError(
            f"{setting.label}: decode.compress.of=total is a share of the prompt and of the new tokens, whose number a "
            "cache does not know: take of=prompt or of=seen, or budget="
        )
    return setting


def _of_object(method: Method, ratio: float | None, budget: int | None, overrides: Sequence[str]) -> list[Setting]:
    if overrides:
        raise UserError(f"{overrides[0]}: overrides apply to a method's name; an object already has its parameters")
    name = type(method).__name__
    return at_amounts(name, method, "", amounts(ratio, budget)) if method.takes_budget else [Setting(name, method, "")]


def _of_name(method: str, ratio: float | None, budget: int | None, overrides: Sequence[str]) -> list[Setting]:
    if method not in (names := choices("method")):
        raise unknown("method", method, names)
    check_read(overrides, METHOD_KEYS, WHO)
    if replaced := next((text for text in overrides if text.partition("=")[0] == "method"), None):
        raise UserError(f"{replaced}: the method is the argument {method!r}, and overrides are its parameters")
    values = [f"{key}={value}" for key, value in (("ratio", ratio), ("budget", budget)) if value is not None]
    return settings_of(configured([f"method={method}", *values, *overrides]))


def _number(name: str, value: object, kind: type, what: str) -> Any:
    """The value as a number of Python, or None. Raises UserError for another kind of value, and for a truth value."""
    if value is None:
        return None
    if not isinstance(value, kind) or isinstance(value, bool):
        raise UserError(f"{name}={value!r} must be {what}")
    return value.item() if isinstance(value, np.generic) else value


def check_plan(setting: Setting, n: int, layers: int, budget: int | float) -> None:
    """Raise UserError for a method that needs more than the forward pass that `generate` makes over the prompt."""
    needs = setting.method.needs
    need = None
    if setting.method.plan(n, layers, budget) != FullPrefill():
        need = "drops tokens within its own forward pass"
    elif needs.reconstructions:
        need = "reads the context a second time"
    elif needs.hidden_similarity:
        need = "compares hidden states"
    if need:
        raise UserError(f"{setting.label} {need}, which generate cannot do: run it in the harness")
