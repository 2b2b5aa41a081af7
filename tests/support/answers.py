"""Whether two computations of one answer agree, as far as rounding leaves a choice."""

from collections.abc import Sequence

from kvbench.evaluation.generation import Generation


def agree(decoded: Generation, expected: Sequence[int]) -> bool:
    """Equal tokens, or a close call of `decoded` no later than where they part."""
    if decoded.tokens == list(expected):
        return True
    pairs = zip(decoded.tokens, expected, strict=False)
    parted = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(decoded.tokens), len(expected)))
    return decoded.close_call is not None and decoded.close_call <= parted
