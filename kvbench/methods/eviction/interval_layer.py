"""The layer cache of compression while decoding."""

from collections.abc import Callable

from torch import Tensor

from kvbench.cache.base import Growing, filled
from kvbench.cache.dense import DenseLayer
from kvbench.cache.quantised.sequence import Ring
from kvbench.errors import UserError
from kvbench.methods.eviction.decode_compression import DecodeCompression, whole_tokens
from kvbench.methods.selection import Selection, gather
from kvbench.ops.column_sums import column_sums
from kvbench.ops.softmax import Scaling
from kvbench.prefill import LayerState, Needs
from kvbench.utils.own_code import is_own_function

# keep(state, target, seen): the indices of the stored tokens to keep, about `target` per head: [heads, k] in the order
# in which to store them; None: all. `state` treats the stored tokens as a prompt; `seen` is the length of the text.
Keep = Callable[[LayerState, int, int], Tensor | None]


def interval_layer(
    when: DecodeCompression,
    layer: LayerState,
    budget: float,
    select: Callable[[LayerState, int], Selection],
    keep: Keep,
    needs: Needs,
    batches: bool = False,
) -> "IntervalLayer":
    """A layer's cache: `select` chooses the prompt's tokens to keep, `keep` the tokens to keep while decoding.

    `batches`: see `LayerCache`.
    """
    n, uncut = layer.seen, when.prompt == "whole"
    is_own = is_own_function(keep)  # kvbench's are held to it by its tests, and wait for no GPU

    def choose(state: LayerState, seen: int) -> Tensor | None:
        indices = keep(state, when.target(budget, seen, n), seen)
        if is_own and indices is not None:
            check_once(keep, indices, state.n)
        return indices

    selection = Selection.everything(layer) if uncut else select(layer, whole_tokens(budget))
    return IntervalLayer(layer, selection, when, choose, needs, batches)


def check_once(keep: Keep, indices: Tensor, n: int) -> None:
    """Raise UserError unless each row of indices [heads, k], which `keep` returned, has some of n tokens, each once."""
    name = getattr(keep, "__qualname__", "keep")
    if indices.dim() != 2 or indices.is_floating_point():
        returned = f"{indices.dtype} {[*indices.shape]}"
        raise UserError(f"{name} returned {returned}: it must be int64 [heads, k], or None for all tokens")
    ordered = indices.sort(dim=1).values
    if (ordered.diff(dim=1) == 0).any() or (ordered < 0).any() or (ordered >= n).any():
        raise UserError(
            f"{name} returned indices {ordered.min().item()} to {ordered.max().item()} for {n} stored "
            f"tokens: each must be from 0 to {n - 1}, and no row may have one twice"
        )


class IntervalLayer(DenseLayer):
    """Appends tokens; after each pass for which `when` is due, keeps the tokens that `choose` returns (None: all).

    It also observes decoded tokens: the last queries in a ring, and column sums, if they are in `needs`. Both are
    stored and counted. Needs other than `window` and `column_sums` cannot be met.
    """

    takes_blocks = False  # it may reduce between two tokens

    def __init__(
        self,
        layer: LayerState,
        selection: Selection,
        when: DecodeCompression,
        choose: Callable[[LayerState, int], Tensor | None],
        needs: Needs,
        batches: bool,
    ):
        """selection: the tokens to keep of the prompt. `layer` has the observations in `needs`."""
        kept = selection.kept(layer)
        super().__init__(selection.of(layer.keys), selection.of(layer.values), layer.seen, kept)
        self.when, self.choose, self.batches = when, choose, batches
        self.prompt, self.index, self.rope = layer.seen, layer.index, layer.rope
        self.queries: Ring | None = None
        self.sums: Growing | None = None
        self.triggers = 0
        if needs.window:
            last = layer.last_queries(needs.window)
            self.queries = Ring(last, needs.window, layer.seen - last.shape[1])
        if needs.column_sums:
            assert layer.column_sums is not None, "they are in `needs`"
            sums = layer.column_sums[..., None]  # [num_attention_heads, n, 1]
            self.sums = Growing(sums.clone() if selection.indices is None else _rows(sums, selection.indices))

    def tensors(self) -> list[Tensor]:
        ring = [] if self.queries is None else [self.queries.buffer]
        sums = [] if self.sums is None else [self.sums.buffer]
        return [self.k.buffer, self.v.buffer, *ring, *sums]

    def float32_tensors(self) -> list[Tensor]:
        return [] if self.sums is None else [self.sums.buffer]

    @property
    def filled_bytes(self) -> int:
        ring = 0 if self.queries is None else self.queries.filled_bytes(self.seen)
        return filled(self.k, self.v, self.sums) + ring

    def append(self, keys: Tensor, values: Tensor) -> None:
        super().append(keys, values)
        if self.sums is not None:
            self.sums.append(self.sums.buffer.new_zeros(len(self.sums.buffer), 1, 1))

    def attend(self, query: Tensor, scaling: Scaling) -> Tensor:
        if self.queries is not None:
            self.queries.at(self.seen - 1).copy_(query[0])
        if self.sums is not None:
            column_sums(query[0], self.k.view[0], scaling, self.k.length - 1, sums=self.sums.buffer[..., 0])
        out = super().attend(query, scaling)
        if not self.unread:
            self._reduce_when_due(query.shape[1], scaling)
        return out

    def reread(self, query: Tensor, scaling: Scaling) -> Tensor:
        out = super().attend(query, scaling)
        if self.was_read():
            self._reduce_when_due(query.shape[1], scaling)
        return out

    def _reduce_when_due(self, num_attention_heads: int, scaling: Scaling) -> None:
        if self.when.due(self.seen, self.prompt):
            self._reduce(num_attention_heads, scaling)

    def _reduce(self, num_attention_heads: int, scaling: Scaling) -> None:
        state = LayerState(
            self.k.view[0], self.v.view[0], scaling, num_attention_heads, self.rope, prompt=self.seen, index=self.index
        )
        if self.queries is not None:
            state.queries = self.queries.rows(max(self.seen - self.queries.limit, 0), self.seen)
        if self.sums is not None:
            state.column_sums = self.sums.view[..., 0]
        indices = self.choose(state, self.seen)
        if indices is None:
            return
        self.triggers = (self.triggers or 0) + 1
        self.k, self.v = (Growing(gather(store.view[0], indices)[None]) for store in (self.k, self.v))
        if self.sums is not None:
            self.sums = Growing(_rows(self.sums.view, indices))


def _rows(sums: Tensor, indices: Tensor) -> Tensor:
    """The rows of sums [num_attention_heads, n, 1] at indices [heads, k], each for the query heads of its group."""
    return gather(sums, indices.repeat_interleave(len(sums) // len(indices), dim=0))
