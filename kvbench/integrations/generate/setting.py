"""One method with one ratio or budget, from the arguments of a Python program."""

from collections.abc import Sequence

from kvbench.configuration import configured
from kvbench.configuration.amounts import amounts
from kvbench.configuration.conf import choices
from kvbench.errors import UserError, unknown
from kvbench.evaluation.settings import Setting, at_amounts, settings_of
from kvbench.methods import Method
from kvbench.prefill import FullPrefill


def setting_of(
    method: str | Method, ratio: float | None = None, budget: int | None = None, overrides: Sequence[str] = ()
) -> Setting:
    """`method` is a name of conf/method or an object; `overrides` are KEY=VALUE of the command line.

    Raises UserError for an unknown name, a bad value, and unless exactly one of ratio and budget is given to a method
    that takes them.
    """
    for name, value, kinds in (("ratio", ratio, (int, float)), ("budget", budget, (int,))):
        if value is not None and (not isinstance(value, kinds) or isinstance(value, bool)):
            raise UserError(f"{name}={value!r} must be {'a number' if name == 'ratio' else 'a whole number of tokens'}")
    if not isinstance(method, str | Method):
        raise UserError(f"method must be a name or an object of a method's class, not {type(method).__name__}")
    if isinstance(overrides, str) or not all(isinstance(item, str) for item in overrides):
        raise UserError(f"overrides={overrides!r} must be a list of KEY=VALUE texts")
    if isinstance(method, Method):
        if overrides:
            raise UserError(f"{overrides[0]}: overrides apply to a method's name; an object already has its parameters")
        name = type(method).__name__
        if method.takes_budget:
            setting = at_amounts(name, method, "", amounts(ratio, budget))[0]
        else:
            setting = Setting(name, method, "")
    else:
        if method not in (names := choices("method")):
            raise unknown("method", method, names)
        values = [f"{key}={value}" for key, value in (("ratio", ratio), ("budget", budget)) if value is not None]
        setting = settings_of(configured([f"method={method}", *values, *overrides]))[0]
    if setting.method.ratio_of == "total" and setting.ratio is not None:
        raise UserError(
            f"{setting.label}: decode.compress.of=total is a share of the prompt and of the new tokens, whose number a "
            "cache does not know: take of=prompt or of=seen, or budget="
        )
    if setting.method.takes_budget and (ratio is None) == (budget is None):
        raise UserError(f"method {setting.name!r} needs one of ratio= (a share of the prompt) and budget= (tokens)")
    return setting


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
