"""What a prefill under a press is told."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Pressing:
    """One press with its arguments; settings that ask for equal ones share a pass."""

    press: str  # a class of kvpress
    arguments: str  # as canonical JSON
    attention: str  # transformers' attention implementation during the pass
    compression_ratio: float | None  # share of the tokens to remove; None: the press knows by itself
