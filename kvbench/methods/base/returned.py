"""What a method returns is what decoding and records rely on: a cache for each layer, which says what it kept."""

from typing import cast

from kvbench.cache.base import LayerCache
from kvbench.cache.reserve_ratio import Kept
from kvbench.errors import UserError
from kvbench.methods.base.method import Method
from kvbench.utils.text import count


def checked_caches(caches: list[LayerCache], method: Method, num_layers: int, seen: int) -> list[LayerCache]:
    """The caches that `method` made of a prompt of `seen` tokens, lowest layer first.

    Raises UserError unless there is one for each of `num_layers` layers, which has seen the prompt and knows what it
    kept: a layer without `kept` would count as one that no method compresses.
    """
    who, given = type(method).__name__, cast(object, caches)
    if not isinstance(given, list | tuple) or len(given) != num_layers:
        what = count(len(given), "cache") if isinstance(given, list | tuple) else f"a {type(given).__name__}"
        raise UserError(f"{who}.compress returned {what}: it must return a list of {num_layers}, one for each layer")
    for index, cache in enumerate(given):
        kind = type(cache).__name__
        if not isinstance(cache, LayerCache):
            what = f"{who} made an object of the type {kind} of layer {index}"
            raise UserError(f"{what}: it must be a LayerCache, such as DenseLayer")
        made = f"{who} made a {kind} of layer {index}"
        if not isinstance(cache.kept, Kept):
            raise UserError(
                f"{made} with kept={cache.kept!r}: it must say what is left, as `selection.kept(layer)` does"
            )
        if not 0 <= cache.kept.retained <= cache.kept.total:
            what = f"{made} that kept {cache.kept.retained:,} of {cache.kept.total:,} vectors"
            raise UserError(f"{what}: `Kept.tokens(nominal, kept, n, heads)` takes kept tokens before the prompt's")
        if (length := cache.get_seq_length()) != seen and not method.own_positions:
            raise UserError(
                f"{made} with seen={length}: it must be {seen}, the prompt's tokens (`layer.seen`), dropped ones among "
                "them: positions go on from there"
            )
        if any(cache is other for other in given[:index]):
            raise UserError(f"{made} that is another layer's, too: each needs a cache of its own")
    return [*given]
