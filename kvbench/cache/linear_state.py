"""The states of a layer that reads its text once: linear attention, state spaces, short convolutions."""

from collections.abc import Sequence
from typing import Self

import torch
from torch import Tensor

from kvbench.cache.base import StoredLayer
from kvbench.models.cache_layers import LinearAttentionLayer


class LinearState(StoredLayer, LinearAttentionLayer):
    """A layer's convolution and recurrent states [1, …], which transformers' code reads and writes.

    The model fixes their size. No method compresses them. Each setting has a copy, because the caches of other layers
    change this layer's input from the first decoded token on. A token that was read cannot be removed.
    """

    fixed = takes_blocks = batches = True

    def tensors(self) -> list[Tensor]:
        return [state for state in (*self.conv_states.values(), *self.recurrent_states.values()) if state is not None]

    def float32_tensors(self) -> list[Tensor]:
        """Recurrent states, which transformers keeps in float32; convolution states have the model's dtype."""
        return [state for state in self.recurrent_states.values() if state is not None]

    @classmethod
    def joined(cls, rows: Sequence[Self]) -> Self:
        """The joined states [rows, …] of several sequences; `rows` must not be used afterwards."""
        batch = cls(rows[0].number_of_states)
        flags = ("is_conv_states_initialized", "is_recurrent_states_initialized", "has_previous_state")
        for name in (*flags, "conv_kernel_size", "device", "dtype"):
            setattr(batch, name, getattr(rows[0], name))
        for number in range(batch.number_of_states):
            batch.conv_states[number] = _together([row.conv_states[number] for row in rows])
            batch.recurrent_states[number] = _together([row.recurrent_states[number] for row in rows])
        return batch

    def keep(self, rows: Sequence[int]) -> None:
        """Keep these sequences and drop the others."""
        for states in (self.conv_states, self.recurrent_states):
            states.update({at: state[list(rows)] for at, state in states.items() if state is not None})


def _together(states: Sequence[Tensor | None]) -> Tensor | None:
    present = [state for state in states if state is not None]
    return torch.cat(present) if present else None
