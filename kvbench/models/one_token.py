"""A model's pass for one token of each sequence, which the host soon makes without the model's modules.

While a token is decoded, the host spends as much time in modules that call modules as in calling torch's functions.
Which functions they are is the same for every token. So two passes are recorded, and if they called the same functions
in the same way, and the calls of the first one reproduce the bits of the second one, they are made without the modules
from then on (`kvbench.models.repeated_pass`).
"""

from collections.abc import Sequence
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from transformers import Cache, PreTrainedModel

from kvbench.models.cache_argument import as_argument
from kvbench.models.recorded_calls import Call, record
from kvbench.models.repeated_pass import RepeatedPass, UnfitError
from kvbench.ops.operator import watched

WARM = 4  # passes with as many rows before two are recorded, which takes the time of about ten


class Logits(NamedTuple):
    """What `OneToken` returns, as far as a model's output is read."""

    logits: Tensor


class _Rows:
    """The passes over one token of each of a number of sequences."""

    def __init__(self) -> None:
        self.passes = 0
        self.unfit: str | None = None  # why the model has to make every pass itself
        self.recorded: RepeatedPass | None = None
        self.checked = False  # whether what was recorded reproduced another pass


class OneToken:
    """A model as far as decoding one token of each sequence needs it. The same logits, bit for bit."""

    def __init__(self, model: PreTrainedModel):
        self.model = model
        self.device = model.device
        known = _KNOWN.get(model)
        state = _state(model)
        if known is None or known[0] != state:
            known = _KNOWN[model] = (state, {})
        self.rows = known[1]

    def forward(self, input_ids: Tensor, cache: Cache, position_ids: Tensor, use_cache: bool) -> Logits:
        """input_ids [sequences, 1], position_ids [1, 1]; logits [sequences, 1, vocab_size]."""
        rows = self.rows.setdefault(len(input_ids), _Rows())
        inputs = (input_ids, position_ids, cache)
        if rows.recorded is not None and rows.checked:
            return Logits(rows.recorded(*inputs))
        rows.passes += 1
        if rows.passes <= WARM or rows.unfit or watched():
            return Logits(self._logits(*inputs))
        logits, calls, reads = record(lambda: self._logits(*inputs))
        try:
            if reads:
                raise UnfitError(f"what it calls depends on what tensors hold: {reads[0]}")
            self._take(rows, inputs, calls, logits)
        except UnfitError as reason:
            rows.unfit, rows.recorded = str(reason), None
        return Logits(logits)

    __call__ = forward

    def _logits(self, input_ids: Tensor, position_ids: Tensor, cache: Cache) -> Tensor:
        named = as_argument(self.model, cache)
        out: Tensor = self.model(input_ids=input_ids, position_ids=position_ids, **named, use_cache=True).logits
        return out

    def _take(self, rows: _Rows, inputs: Sequence[Any], calls: Sequence[Call], logits: Tensor) -> None:
        """Keep the first recorded pass, or compare it with the second one."""
        parts = [*self.model.parameters(), *self.model.buffers(), *self.model.modules()]
        found = RepeatedPass(calls, inputs, logits, parts)
        if rows.recorded is None:
            rows.recorded = found
        elif found.signature != rows.recorded.signature:
            raise UnfitError("two passes called different functions")
        elif not rows.recorded.reproduces(inputs, calls, logits):
            raise UnfitError("its calls do not reproduce another pass")
        else:
            rows.checked = True


_KNOWN: WeakKeyDictionary[PreTrainedModel, tuple[Any, dict[int, _Rows]]] = WeakKeyDictionary()


def _state(model: PreTrainedModel) -> tuple[Any, ...]:
    """What differs after a change of the model by which it may call other functions: of its parts, hooks or modes."""
    tensors = [id(x) for x in (*model.parameters(), *model.buffers())]
    modules = [(id(m), m.training, len(m._forward_hooks), len(m._forward_pre_hooks)) for m in model.modules()]
    how = (model.dtype, model.device, model.config._attn_implementation, torch.is_autocast_enabled(model.device.type))
    return tensors, modules, how
