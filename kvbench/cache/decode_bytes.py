"""Bytes that a sequence's caches hold and read while it decodes, and FullKV's bytes at the same passes."""

from collections import deque
from dataclasses import dataclass, field
from operator import attrgetter

RECENT = 16  # passes that can be taken back
SUMS = ("passes", "tokens", "full_tokens", "held", "read", "fixed", "peak")
_sums = attrgetter(*SUMS)


@dataclass
class DecodeBytes:
    """Counts of one sequence over its forward passes after prefill, including passes that read a hidden question.

    Layers of fixed size (a sliding window, a state) hold the same under FullKV, which holds all tokens in other layers.
    A pass is counted while it attends: its tokens are stored, and no token has been evicted for them yet.
    """

    start: int  # bytes held before the first pass
    passes: int = 0
    tokens: int = 0  # tokens read by the passes
    full_tokens: int = 0  # sum over the passes of the tokens read so far, which FullKV holds in addition to the prompt
    held: int = 0  # sum over the passes of the bytes held
    read: int = 0  # sum over the passes of the bytes that attention reads
    fixed: int = 0  # sum over the passes of the bytes that layers of fixed size hold
    peak: int = field(init=False)  # most bytes held, before the first pass or in one
    # SUMS as they were before each of the last passes
    earlier: deque[tuple[int, ...]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self.peak = self.start
        self.earlier = deque(maxlen=RECENT)

    def add(self, tokens: int, held: int, read: int, fixed: int = 0) -> None:
        """Count a pass over `tokens` tokens: bytes held and read in all layers, and held in layers of fixed size."""
        self.earlier.append(_sums(self))
        self.passes += 1
        self.tokens += tokens
        self.full_tokens += self.tokens
        self.held += held
        self.read += read
        self.fixed += fixed
        self.peak = max(self.peak, held)

    def take_back(self, passes: int) -> None:
        """Forget the last passes, at most `RECENT`."""
        for _ in range(passes):
            vars(self).update(zip(SUMS, self.earlier.pop(), strict=True))

    def follow(self, earlier: "DecodeBytes") -> None:
        """Count the passes of `earlier` too, which came before all of these."""
        self.full_tokens += earlier.full_tokens + earlier.tokens * self.passes
        for name in ("passes", "tokens", "held", "read", "fixed"):
            setattr(self, name, getattr(self, name) + getattr(earlier, name))
        self.start, self.peak = earlier.start, max(earlier.peak, self.peak)

    def figures(
        self, end: int, prefill_peak: int, full_bytes: int, n: int, unread: int = 0, fixed: tuple[int, int] = (0, 0)
    ) -> "DecodeFigures":
        """The figures of a record.

        end           bytes held after the last pass
        prefill_peak  most bytes that prefill and compression held
        full_bytes    FullKV's cache of the prompt of n tokens
        unread        bytes counted as read that attention did not read
        fixed         bytes in layers of fixed size, of the prompt and after the last pass
        """
        grows = full_bytes - fixed[0]
        token = grows // n
        last = grows + token * self.tokens + fixed[1]  # FullKV after the last pass
        passes, held, read, full = (
            self.passes,
            self.held,
            self.read - unread,
            self.passes * grows + token * self.full_tokens + self.fixed,
        )
        if not passes:  # the prompt's cache alone
            passes, held, read, full = 1, self.start, self.start, full_bytes
        return DecodeFigures(
            decode_tokens=self.tokens,
            decode_byte_steps=self.held,
            decode_bytes_mean=held / passes,
            decode_bytes_peak=self.peak,
            decode_bytes_end=end,
            decode_bytes_read=read / passes,
            r_mean=held / full,
            r_peak=max(prefill_peak, self.peak) / last,
            r_decode_peak=self.peak / last,
            r_end=end / last,
            r_read=read / full,
        )


@dataclass(frozen=True)
class DecodeFigures:
    """A record's figures of decoding: bytes of all layers, and ratios to FullKV's. docs/records.md defines each.

    Ratios are ratios of sums over the passes: means of ratios would give early passes too much weight.
    """

    decode_tokens: int
    decode_byte_steps: int
    decode_bytes_mean: float
    decode_bytes_peak: int
    decode_bytes_end: int
    decode_bytes_read: float
    r_mean: float
    r_peak: float
    r_decode_peak: float
    r_end: float
    r_read: float
