"""What settings share of a prompt's pass stays as it was: a class that writes it changes the records of others."""

from collections.abc import Sequence

import torch
from torch import Tensor

from kvbench.errors import UserError
from kvbench.evaluation.cache_checks import collect_tensors
from kvbench.evaluation.prefill_passes import SharedPass, StreamedPass
from kvbench.methods.base.method import Method
from kvbench.prefill import PrefillState
from kvbench.utils.versions import outside_classes

WHOLE = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}  # integers as wide as an element


class SharedState:
    """What settings share of a pass, before a method compresses it and its caches decode.

    Classes of kvbench are held by its tests to leave it as it is; for others it is read, outside of measured times.
    """

    def __init__(self, prefilled: SharedPass | StreamedPass, method: Method):
        self.classes = outside_classes(method)
        self.tensors: list[Tensor] = []
        if self.classes and isinstance(prefilled, SharedPass):  # a streamed one is of one setting
            self.tensors = shared_tensors(prefilled.state)
            self.before = fingerprint(self.tensors)

    def check(self) -> None:
        """Raise UserError if what other settings read has changed."""
        if self.tensors and not torch.equal(fingerprint(self.tensors), self.before):
            raise UserError(
                f"{' or '.join(self.classes)} wrote into the prefill state, which all settings of a sample read: "
                "change copies (`x.clone()`) of its keys, values and observations; `kvbench check` shows where"
            )

    def release(self) -> None:
        """Let go of it: no other setting reads it from now on."""
        self.tensors = []


def shared_tensors(state: PrefillState) -> list[Tensor]:
    """The tensors of a prefill state that settings share, with what one of them computed for all, each storage once."""
    held: dict[int, Tensor] = {}
    collect_tensors([state.layers, state.logits], held, set())
    return list(held.values())


@torch.inference_mode()
def fingerprint(tensors: Sequence[Tensor]) -> Tensor:
    """Sums over the elements of each tensor, read as integers: int64 [tensors, 2], on the device of the first.

    The second weighs rows by their place, so that rows that change places change it.
    """
    return torch.stack([_sums(tensor).to(tensors[0].device) for tensor in tensors])


def _sums(tensor: Tensor) -> Tensor:
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    numbers = tensor.detach().view(WHOLE[tensor.element_size()])
    rows = numbers.sum(dim=-1, dtype=torch.int64) if numbers.dim() > 2 else numbers.long()
    rows = rows.flatten()
    places = torch.arange(1, len(rows) + 1, device=rows.device)
    return torch.stack([rows.sum(), (rows * places).sum()])
