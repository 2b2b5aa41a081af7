"""The rules that every method follows, as functions on its layer caches: `kvbench check` and the tests call them."""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from kvbench.cache.base import LayerCache, storage_bytes
from kvbench.cache.eviction_cuts import Cuts
from kvbench.cache.kept_positions import KeptPositions
from kvbench.cache.reserve_ratio import Kept, ReserveRatio
from kvbench.ops.rope import Rope
from kvbench.prefill import PrefillState
from kvbench.utils.text import count

MOST_ROWS, ROW_BYTES = 64, 100  # of an index table; a prompt of `kvbench check` has more tokens


class RuleBroken(AssertionError):
    """A method breaks a rule; the message says where, with numbers."""


def hold(holds: object, message: str) -> None:
    """Raise RuleBroken unless the rule holds."""
    if not holds:
        raise RuleBroken(message)


def check_bytes(caches: Sequence[LayerCache]) -> None:
    """Layers hold only what `tensors` lists and small `index_tables`; nothing is counted twice."""
    held: dict[int, Tensor] = {}
    collect_tensors(list(caches), held, set())
    listed = [tensor for layer in caches for tensor in layer.tensors()]
    tables = [table for layer in caches for table in layer.index_tables()]
    for table in tables:
        rows = max(table.shape, default=1)
        small = rows <= MOST_ROWS and table.nbytes <= ROW_BYTES * rows
        hold(small, f"index_tables() has one of {table.nbytes:,} bytes: more than a few numbers for each head")
    # the graph of objects may mention a few empty tensors and no others
    hidden = set(held) - {tensor.untyped_storage().data_ptr() for tensor in [*listed, *tables]}
    unlisted = storage_bytes(held[address] for address in hidden)
    hold(unlisted == 0, f"its caches hold {unlisted:,} bytes that tensors() does not list")
    counted, stored = sum(layer.nbytes for layer in caches), storage_bytes(listed)
    hold(counted == stored, f"nbytes of the layers add up to {counted:,}, and their tensors are {stored:,} bytes")
    for index, layer in enumerate(caches):
        hold(
            0 < layer.filled_bytes <= layer.nbytes or not layer.nbytes,  # a layer may keep no token
            f"layer {index}: filled_bytes is {layer.filled_bytes:,} of {layer.nbytes:,} bytes",
        )


def collect_tensors(value: object, tensors: dict[int, Tensor], visited: set[int]) -> None:
    """Add every tensor that is reachable from `value` to `tensors`, by the address of its storage.

    Left out are the model's RoPE, the histogram of kept positions and the scores at cuts (both stay on the device until
    a record reads them), and what modules and classes hold.
    """
    if id(value) in visited or isinstance(value, Rope | KeptPositions | Cuts | type):
        return
    visited.add(id(value))
    if isinstance(value, Tensor):
        tensors[value.untyped_storage().data_ptr()] = value
    elif isinstance(value, dict | list | tuple | set):
        for item in value.values() if isinstance(value, dict) else value:
            collect_tensors(item, tensors, visited)
    elif hasattr(value, "__dict__") and type(value).__module__.partition(".")[0] not in ("torch", "transformers"):
        collect_tensors(vars(value), tensors, visited)


def check_kept(
    caches: Sequence[LayerCache], n: int, full_bytes: int, most: float = 1 + 1e-9, heads: int = 1
) -> ReserveRatio:
    """Each layer reports how many of n tokens it kept, at most its allocation; r is at most `most`.

    `heads` is the number of query heads of a group that count a token once each. Returns the ratios.
    """
    layers = kept_of(caches)
    for index, kept in enumerate(layers):
        hold(
            0 < kept.retained <= kept.total,
            f"layer {index}: kept reports that {kept.retained:,} of {kept.total:,} vectors are left",
        )
        rounded = 0.5 if kept.per_head else 0  # at most half a token per head
        hold(
            kept.nominal >= 1 and kept.r1 * n <= heads * kept.nominal + rounded + 1e-9,
            f"layer {index}: it keeps {kept.r1 * n:g} tokens per head, but its share of the budget is {kept.nominal}",
        )
    ratio = ReserveRatio.from_layers(layers, sum(layer.late_bytes or layer.nbytes for layer in caches), full_bytes)
    hold(0 < ratio.r <= most and ratio.r_bytes > 0, f"r is {ratio.r:.3f} and r_bytes {ratio.r_bytes:.3f}")
    return ratio


def kept_of(caches: Sequence[LayerCache]) -> list[Kept]:
    """What each layer kept. A layer without it was not compressed, which breaks a rule."""
    layers = [cache.kept for cache in caches if cache.kept is not None]
    hold(len(layers) == len(caches), "a layer does not say what it kept of the prompt")
    return layers


def check_budget(caches: Sequence[LayerCache], n: int, budget: int | float) -> None:
    """The layers keep at most `budget` tokens per head in the mean."""
    kept = sum(layer.r1 for layer in kept_of(caches)) * n / len(caches)
    hold(kept <= budget + 1e-6, f"with a budget of {budget:g} of {n} tokens it keeps {kept:g} per layer and head")


def check_lengths(caches: Iterable[LayerCache], seen: int) -> None:
    """Every layer counts all tokens that it has seen, dropped ones too: positions of later tokens follow from it."""
    for index, cache in enumerate(caches):
        length = cache.get_seq_length()
        hold(length == seen, f"layer {index}: get_seq_length is {length} after {count(seen, 'token')}")


def tensors_of(state: PrefillState) -> list[Tensor]:
    """The tensors of a prefill state that methods share."""
    return [x for layer in state.layers for x in vars(layer).values() if isinstance(x, Tensor)] + [state.logits]


def check_unchanged(now: Sequence[Tensor], before: Sequence[Tensor]) -> None:
    """A method does not write into the prefill state, which all settings share."""
    changed = sum(not torch.equal(a, b) for a, b in zip(now, before, strict=True))
    hold(
        not changed,
        f"compressing changed {count(changed, 'tensor')} of the prefill state, which other settings read too",
    )
