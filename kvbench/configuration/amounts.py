"""How much is kept: `ratio=` and `budget=`, of the whole configuration or of one method."""

from collections.abc import Iterable
from typing import Annotated, Any, NamedTuple

from pydantic import PlainValidator

from kvbench.configuration.kinds import LIST, NULL, SINGLE, of_kind
from kvbench.errors import UserError
from kvbench.utils.numbers import is_number

DEFAULT_RATIOS = (0.2, 0.4)


class Amounts(NamedTuple):
    """Ratios or budgets; one of the two lists is empty."""

    ratios: list[float]  # shares of FullKV
    budgets: list[int]  # tokens per layer and head


def amounts(ratio: object, budget: object) -> Amounts:
    """The ratios or budgets that the values of `ratio` and `budget` request; the default ratios if both are null.

    Raises UserError for a wrong value, and for both.
    """
    if ratio is not None and budget is not None:
        raise UserError(f"ratio={ratio} and budget={budget} exclude each other: give one")
    if budget is not None:
        return Amounts([], _budgets(budget))
    return Amounts(_ratios(DEFAULT_RATIOS if ratio is None else ratio), [])


def _ratios(value: object) -> list[float]:
    """A single ratio or several, each in (0, 1]."""
    ratios = _as_list(value)
    for ratio in ratios:
        if not is_number(ratio) or not 0 < ratio <= 1:
            raise UserError(
                f"ratio {ratio!r} is outside (0, 1]: it is the share of FullKV to keep, "
                "for example 0.2 (budget= takes tokens)"
            )
    return list(dict.fromkeys(float(ratio) for ratio in ratios))


def _budgets(value: object) -> list[int]:
    """A single budget or several, each a positive number of tokens."""
    budgets = _as_list(value)
    for budget in budgets:
        if isinstance(budget, bool) or not isinstance(budget, int) or budget < 1:
            raise UserError(
                f"budget {budget!r} is not a positive whole number of tokens per layer (ratio= takes a share of FullKV)"
            )
    return list(dict.fromkeys(budgets))


def _as_list(value: object) -> list[Any]:
    values = list(value) if isinstance(value, Iterable) and not isinstance(value, str) else [value]
    if not values:
        raise UserError("an empty list of ratios or budgets leaves nothing to run")
    return values


_single_or_list = of_kind(SINGLE, LIST, NULL)


def _ratio(value: object) -> object:
    amounts(_single_or_list(value), None)
    return value


def _budget(value: object) -> object:
    amounts(None, _single_or_list(value))
    return value


# Values stay as the user wrote them: captions and messages repeat them.
Ratio = Annotated[
    float | list[float] | None, PlainValidator(_ratio), "number above 0 and at most 1, or a list, or `null`"
]
Budget = Annotated[int | list[int] | None, PlainValidator(_budget), "integer of at least 1, or a list, or `null`"]
