"""What the caches of several rows of a batch move into, so that one call appends and attends for all of them."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, Self, TypeVar

from torch import Tensor

from kvbench.ops.softmax import Scaling


@dataclass
class PackRow:
    """One row's part of a pack."""

    nbytes: int = 0  # room for further tokens included
    filled_bytes: int = 0  # without this room


Row = TypeVar("Row", bound=PackRow)


class Pack(ABC, Generic[Row]):
    """Keys and values of `rows`, each as if it had a cache of its own.

    takes_blocks   as of a `LayerCache`.
    room           how many more tokens have their place in its tensors.
    moves          how often the tensors that a step reads, or what it takes from the host, have been replaced.
    """

    rows: list[Row]
    takes_blocks: bool
    room: int = 0
    moves: int = 0

    @abstractmethod
    def joins(self, other: "Pack[Any]") -> bool:
        """Whether `joined` can put the rows of the other one behind these."""

    @classmethod
    @abstractmethod
    def joined(cls, parts: Sequence[Self], room: int) -> Self:
        """The rows of all parts, whose objects are those of the new pack. `room`: the tokens to make room for at once,
        where this does not change how bytes are counted."""

    @abstractmethod
    def append(self, keys: Tensor, values: Tensor) -> None:
        """Store new tokens in every row: keys (after RoPE) and values, [rows, num_key_value_heads, t, head_dim]."""

    def update(self, keys: Tensor, values: Tensor) -> None:
        """`append`, as of a layer cache."""
        self.append(keys, values)

    @abstractmethod
    def attend(self, query: Tensor, scaling: Scaling) -> Tensor:
        """The attention output of query [rows, num_attention_heads, t, head_dim], of the same shape."""

    def reread(self, query: Tensor, scaling: Scaling) -> Tensor:
        """As of a layer cache."""
        return self.attend(query, scaling)

    @abstractmethod
    def keep(self, rows: Sequence[int]) -> None:
        """Keep these rows and drop the others."""

    @property
    def ahead(self) -> int:
        """How many more tokens can be appended, one by one, by repeating the device operations of the last `append` of
        one token, on the same tensors, each time after `make_way`: all else that differs from token to token is on the
        device. After a token that Python has to append they can be repeated again, unless the tensors have moved."""
        return 0

    def make_way(self) -> None:
        """What has to be done before the next token is appended, whether by Python or by repeated operations."""
        return None

    fuses: bool = True  # whether torch.compile makes one graph of `write` and `attend`, without tables made anew

    def write(self, keys: Tensor, values: Tensor) -> None:
        """The device's part of `append`, of one token that is `ahead`. `advance` is the host's."""
        raise NotImplementedError(f"{type(self).__name__} has no tokens ahead")

    def advance(self, tokens: int) -> None:
        """Count tokens that repeated operations have appended, at most `ahead`; a negative number: they are gone."""
        raise NotImplementedError(f"{type(self).__name__} has no tokens ahead")

    def make_room(self, tokens: int) -> None:
        """Make room for these tokens at once, where that changes no count of bytes."""
        return None

    takes_back: bool = False  # whether the last tokens of a row can be taken back, as if they had never come

    def take_back(self, row: int, tokens: int) -> None:
        """Take back the last tokens of a row that were appended one by one."""
        raise NotImplementedError(f"{type(self).__name__} takes nothing back")

    @abstractmethod
    def tensors(self) -> list[Tensor]:
        """Every tensor stored."""
