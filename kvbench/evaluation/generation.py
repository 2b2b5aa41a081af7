"""The result of decoding one sequence: its tokens, what ended it, and how many passes it took."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from kvbench.cache.decode_bytes import DecodeBytes


class Ends(NamedTuple):
    """The limits and tokens that end a sequence."""

    stop_tokens: frozenset[int]
    max_new_tokens: int
    until: Callable[[list[int]], bool] | None


@dataclass
class Generation:
    """The output of one sequence of a batch."""

    decode_bytes: DecodeBytes  # of its caches, from the end of the prompt on
    repeats: Literal["graph", "fused"] = "graph"  # which kind of recording repeated steps have
    tokens: list[int] = field(default_factory=list)  # without the stop token
    ended_by: int | None = None  # the stop token; None where something else ended the sequence
    steps: int = 0  # forward passes after prefill that included this sequence
    repeated: int = 0  # of these, repeated ones, which Python did not launch
    seconds: float = 0.0  # from the start of decoding to the end of this sequence
    not_finite: int | None = None  # index of the token whose logits were NaN or infinite, which ended the sequence
    close_call: int | None = None  # index of the first token that rounding in a batch could change; None: no token
    ended: bool = False

    @property
    def engine(self) -> str:
        """How most of its steps were launched: graph, fused or eager."""
        return self.repeats if self.repeated > self.steps / 2 else "eager"

    def passed(self, repeated: bool) -> None:
        """Count a pass, unless it came after the end."""
        if not self.ended:
            self.steps += 1
            self.repeated += repeated

    def withdraw(self, passes: int) -> None:
        """Uncount the last passes."""
        self.steps -= passes
        self.repeated = min(self.repeated, self.steps)

    def takes(self, token: int, close: bool, finite: bool, ends: Ends) -> bool:
        """Append a token, or note what ended the sequence instead. Returns whether the sequence goes on."""
        if close and self.close_call is None:
            self.close_call = len(self.tokens)
        if not finite:
            self.not_finite = len(self.tokens)
        elif token in ends.stop_tokens:
            self.ended_by = token
        else:
            self.tokens.append(token)
            self.ended = len(self.tokens) >= ends.max_new_tokens or bool(ends.until and ends.until(self.tokens))
            return not self.ended
        self.ended = True
        return False
