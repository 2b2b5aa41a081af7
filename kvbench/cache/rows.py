"""Layer caches of rows: of one sequence, or of as many as a batch has joined."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Self

from torch import Tensor

from kvbench.cache.base import LayerCache, Row


class RowsLayer(LayerCache):
    """A layer cache with a row for each sequence, one or several, so that one call appends and attends for all of them.

    With room for further tokens, the host has no part in appending one: device operations can be repeated.

    rows        what each sequence holds; it may be empty in the cache of one, which counts itself.
    room        how many more tokens of each row have their place in its tensors.
    moves       how often the tensors that a step reads, or what it takes from the host, have been replaced.
    fuses       whether torch.compile makes one graph of `write` and `attend`, without tables made anew.
    takes_back  whether the last tokens of a row can be taken back, as if they had never come.
    """

    rows: Sequence[Row] = ()
    room: int = 0
    moves: int = 0
    fuses: bool = True
    takes_back: bool = False

    def joins(self, other: "RowsLayer") -> bool:
        """Whether `joined` can append the other cache's rows to these."""
        return False

    def joined(self, others: Sequence[Self], room: int) -> "RowsLayer":
        """The cache of its rows and those of `others`, none of which is used any more; without others it may be this
        one. `room`: the tokens to make room for at once, where this does not change how bytes are counted."""
        self.make_room(room)
        return self

    def keep(self, rows: Sequence[int]) -> None:
        """Keep these rows of several and drop the others."""
        raise NotImplementedError(f"{type(self).__name__} has one row")

    def make_room(self, tokens: int) -> None:
        """Make room for these tokens at once, where that changes no count of bytes."""
        return None

    @property
    @abstractmethod
    def ahead(self) -> int:
        """How many more tokens can be appended, one by one, by repeating the device operations of the last `append` of
        one token, on the same tensors, each time after `make_way`: all else that differs from token to token is on the
        device. After a token that Python has to append they can be repeated again, unless the tensors have moved."""

    def make_way(self) -> None:
        """What has to be done before the next token is appended, whether by Python or by repeated operations."""
        return None

    @abstractmethod
    def write(self, keys: Tensor, values: Tensor) -> None:
        """The device's part of `append`, of one token that is `ahead`. `advance` is the host's."""

    @abstractmethod
    def advance(self, tokens: int) -> None:
        """Count tokens that repeated operations have appended, at most `ahead`; a negative number: they are gone."""

    def take_back(self, row: int, tokens: int) -> None:
        """Take back the last tokens of a row that were appended one by one."""
        raise NotImplementedError(f"{type(self).__name__} takes nothing back")
