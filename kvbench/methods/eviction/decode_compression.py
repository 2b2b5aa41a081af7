"""Compression while decoding: when tokens are dropped, and how many stay."""

from typing import ClassVar, Literal, NamedTuple

from kvbench.methods.facts import Stated, values
from kvbench.utils.checked import Positive, checked

# Added before rounding down, because a share of a whole number may come out just below it.
NOISE = 1e-9

Slots = Literal["position", "score"]


class DecodingProtocol(NamedTuple):
    """The values of a method's attributes of the same names."""

    takes_fractions: bool
    ratio_of: str
    compress_at: str


@checked
class DecodeCompression(Stated):
    """Reduce each layer's cache, prompt and decoded tokens alike, to a budget at intervals; only append in between.

    every    passes from one reduction to the next. A pass attends to all that is stored before it reduces, so from the
             first reduction on the caches hold at most budget + every tokens per head, in the mean over layers.
    budget   tokens per layer and head, the mean over layers. null: the setting's ratio or budget.
    prompt   cut: the prompt is cut to the setting's ratio or budget after prefill, as without decode_compression.
             whole: it is kept until the first reduction, which a short answer may never reach.
    of       the tokens that the setting's ratio counts if `budget` is null. prompt: the prompt's. total: the prompt's
             and the largest number of new tokens. seen: the tokens read so far, so that the budget grows; if a short
             prompt raised the ratio to the method's smallest budget (`floored`), it grows in proportion to that.
    counts   decoded: passes are counted from the end of the prompt. seen: R-KV's code. The length of the text, the
             prompt's first, is looked at after each pass: if it is a multiple of `every`, the next pass reduces. Each
             text is counted by itself; the code's count goes on from one sample to the next.
    slots    position: stored tokens keep the order of the text. score: they are stored in the order of their scores, as
             in R-KV's code, and pooling over neighbours and "the last similar token" refer to that order.
    """

    short = values(every=4)

    version: ClassVar[int] = 2  # 1 reduced a pass early with counts=seen, and never right behind a prompt

    every: Positive = 128
    budget: Positive | None = None
    prompt: Literal["cut", "whole"] = "cut"
    of: Literal["prompt", "total", "seen"] = "prompt"
    counts: Literal["decoded", "seen"] = "decoded"
    slots: Slots = "position"

    @property
    def overspends(self) -> str:
        """Why the layers may keep more than the budget at first; "" where the prompt is cut after prefill."""
        return "the prompt stays whole until the first reduction" if self.prompt == "whole" else ""

    def due(self, seen: int, prompt: int) -> bool:
        """Whether to reduce after the pass that read token `seen` of a text with a prompt of `prompt` tokens."""
        return (seen - 1 if self.counts == "seen" else seen - prompt) % self.every == 0

    def target(self, budget: float, seen: int, prompt: int) -> int:
        """Tokens per head to keep after a pass that is due, the mean over layers, for the setting's `budget`."""
        if self.budget is not None:
            return self.budget
        return whole_tokens(budget / prompt * seen if self.of == "seen" else budget)

    @property
    def protocol(self) -> DecodingProtocol:
        """The attributes of a method with this schedule: what a ratio is a share of, and when the prompt is cut."""
        ratio_of = "prompt" if self.budget is not None else self.of
        compress_at = "prefill_end" if self.prompt == "cut" else "while_decoding"
        return DecodingProtocol(ratio_of == "seen", ratio_of, compress_at)


def whole_tokens(budget: float) -> int:
    return int(budget + NOISE)
