"""The count of the bytes that the layers of a pass over a prompt hold."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from kvbench.cache.base import StoredLayer


class Taken(NamedTuple):
    """Bytes held by the receiver of a pass's layers, each storage once."""

    most: int  # while it took the last layer, that layer included
    now: int  # of all layers so far


@dataclass
class Held:
    """Bytes of keys, values and latents in all layers of a pass, now and at most.

    states   layers with a state of fixed size. transformers' code writes them, so they are asked for their bytes.
    """

    now: int = 0
    most: int = 0
    states: Sequence[StoredLayer] = ()
    taken: int = 0  # of `now`, what the receiver of layers holds

    def note(self, more: int = 0) -> None:
        """Note the bytes held now, and `more` bytes that exist only for a moment."""
        self.most = max(self.most, self.now + more + sum(layer.filled_bytes for layer in self.states))

    def replace(self, old: Tensor | None, new: Tensor) -> Tensor:
        """Count `new`, which briefly exists beside the `old` tensor that it replaces."""
        self.note(new.nbytes)
        self.now += new.nbytes - (0 if old is None else old.nbytes)
        return new

    def add(self, tensors: Iterable[Tensor]) -> None:
        for tensor in tensors:
            self.replace(None, tensor)

    def drop(self, tensors: Iterable[Tensor]) -> None:
        self.now -= sum(tensor.nbytes for tensor in tensors)

    def hand_over(self, tensors: Iterable[Tensor], taken: Taken | None) -> None:
        """Count that a receiver has taken the layer with these tensors; None: it holds nothing that counts."""
        self.drop(tensors)
        most, now = taken or (0, 0)
        self.note(most - self.taken)
        self.now += now - self.taken
        self.taken = now
