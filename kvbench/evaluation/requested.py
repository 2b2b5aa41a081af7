"""The requested ratios or budgets, `ratio=` and `budget=`, checked without torch."""

from collections.abc import Iterable

from kvbench.errors import UserError
from kvbench.utils.validation import is_number

DEFAULT_RATIOS = (0.2, 0.4)


def ratios_or_budgets(ratio: object, budget: object) -> tuple[list[float], list[int]]:
    """The list of ratios and the list of budgets, one of them empty; the default ratios if neither is given."""
    if ratio is not None and budget is not None:
        raise UserError(f"ratio={ratio} and budget={budget} exclude each other: give one")
    if budget is not None:
        return [], check_budgets(budget)
    return check_ratios(DEFAULT_RATIOS if ratio is None else ratio), []


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
