"""Properties that methods and their parts state for `kvbench check` and for the tests, which keep no lists of names."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar, NamedTuple

from kvbench.utils.checked import Checked
from kvbench.utils.versions import Versioned, parts


def values(**fields: object) -> Mapping[str, object]:
    """Fields and their values, for `Stated.short`."""
    return MappingProxyType(fields)


class Launches(NamedTuple):
    """The most kernels and waits of one layer on a GPU. FullKV launches 43 kernels for a decoded token."""

    decode: int = 60  # kernels of a decoded token
    decode_waits: int = 0  # waits for the device, and uploads, of a decoded token
    compress_waits: int = 1  # of the compression of a prompt


class Stated(Checked, Versioned):
    """A method or a part of one, with its exceptions from the rules that hold for all others.

    `short` has values for the tests: smaller values of fields whose defaults have no effect on a prompt of a hundred
    tokens. A field that a configuration leaves at null stays null.
    """

    guide: ClassVar[str] = "docs/adding-a-method.md"
    short: ClassVar[Mapping[str, object]] = {}

    @property
    def never_full(self) -> str:
        """Why a budget of the whole prompt does not give FullKV's tokens, such as "quantised"; "" if it does."""
        return ""

    @property
    def overspends(self) -> str:
        """Why the layers may keep more than the budget on average; "" if they never do."""
        return ""

    @property
    def always(self) -> int:
        """Tokens per head that are kept of a prompt without a chat template, whatever the budget."""
        return 0

    def most_share(self, tokens: int) -> float:
        """The largest r of a prompt of `tokens` tokens of which none is dropped, in a model with heads of 32 channels.

        It is above 1 if tables or other data beside the tokens cost a short prompt more bytes than they save.
        """
        return 1.0

    @property
    def launches(self) -> Launches:
        return Launches()

    def forget(self) -> None:
        """Drop what is remembered of earlier prompts, so that the next one's time includes it."""


def never_full(method: Stated) -> str:
    """The first reason of a method or one of its parts; "" if a budget of the whole prompt is FullKV."""
    return next((part.never_full for part in _stated(method) if part.never_full), "")


def overspends(method: Stated) -> str:
    """The first reason of a method or one of its parts; "" if it never keeps more than its budget."""
    return next((part.overspends for part in _stated(method) if part.overspends), "")


def allowed(method: Stated, budget: float, n: int) -> float:
    """The most tokens per head that a method may keep of n, the mean over layers, unless it `overspends`."""
    return max(budget, min(n, max(part.always for part in _stated(method))))


def most_share(method: Stated, tokens: int) -> float:
    """The largest `most_share` of a method and its parts."""
    return max(part.most_share(tokens) for part in _stated(method))


def launches(method: Stated) -> Launches:
    """The largest `launches` of a method and its parts, number by number."""
    return Launches(*map(max, zip(*(part.launches for part in _stated(method)), strict=True)))


def forget(method: Stated) -> None:
    """`Stated.forget` of a method and its parts."""
    for part in _stated(method):
        part.forget()


def _stated(method: Stated) -> list[Stated]:
    return [part for part in parts(method) if isinstance(part, Stated)]
