"""What a prefill that drops tokens on its way up is told, and how long its layers get."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Pruning:
    """PyramidInfer's pruning of one prompt: after a layer, its least attended context tokens go no further.

    The context is everything before the last 1 + `recent` tokens, which stay and whose queries judge it.
    """

    shares: tuple[float, ...]  # per layer, of the context that entered it; 1 drops nothing
    recent: int
    sinks: int  # first tokens, which stay
    min_context: int  # a context is never cut to this many tokens or fewer
    distance_weight: float  # of the last query; the first has 1, those between lie on a line

    @property
    def tail(self) -> int:
        return 1 + self.recent

    def survivors(self, layer: int, context: int) -> int:
        """How many of `context` tokens go on from `layer` to the next."""
        kept = int(context * self.shares[layer])
        return kept if kept > self.min_context else context

    def lengths(self, n: int) -> list[int]:
        """Tokens that enter each layer, which are those its cache holds: closed form, no attention needed."""
        context, lengths = n - self.tail, []
        for layer in range(len(self.shares)):
            lengths.append(self.tail + context)
            context = self.survivors(layer, context)
        return lengths
