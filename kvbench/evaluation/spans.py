"""Marked spans of a prompt: the places of their tokens, and the share of them that survives compression."""

from collections.abc import Mapping, Sequence
from statistics import fmean

from kvbench.benchmarks import Sample
from kvbench.cache.reserve_ratio import Kept
from kvbench.errors import UserError
from kvbench.evaluation.encoded import encoded
from kvbench.models import LoadedModel, TextModel

SYSTEM = "system"  # the span of a chat's system message, unless the sample marks a span of this name
Span = tuple[int, int]  # indices of its first token and of the token after its last, in a prompt


def marked_texts(sample: Sample) -> dict[str, str]:
    """The marked texts of a sample by name: its own spans, and a chat's system message."""
    system = next((content.strip() for role, content in sample.history if role == "system"), "")
    return ({SYSTEM: system} if system else {}) | dict(sample.spans)


def spans_of(loaded: LoadedModel | TextModel, sample: Sample, text: str) -> dict[str, Span]:
    """The tokens of each marked text in `text`, the rendered prompt, including tokens that overlap only in part.

    Raises UserError if a span of the sample does not occur exactly once, or if the tokenizer has no offsets.
    """
    texts = marked_texts(sample)
    if not texts:
        return {}
    if not loaded.tokenizer.is_fast:
        if sample.spans:
            raise UserError(f"spans need a fast tokenizer, which {loaded.spec.name} does not have")
        return {}
    offsets = encoded(loaded, sample, text, offsets=True).offsets
    required, spans = dict(sample.spans), {}
    for name, marked in texts.items():
        count = text.count(marked)
        if name in required and count != 1:
            raise UserError(
                f"sample {sample.id!r}: the text of span {name!r} occurs {count} times in its prompt, not once"
            )
        if count:  # a chat template may leave a system message out
            start = text.index(marked)
            end = start + len(marked)
            spans[name] = sum(last <= start for _, last in offsets), sum(first < end for first, _ in offsets)
    return spans


def marks_of(spans: Sequence[Mapping[str, Span]], n: int) -> tuple[int, ...]:
    """The beginnings and ends, ascending, of the spans of prompts that share a context of n tokens."""
    return tuple(sorted({min(place, n) for named in spans for span in named.values() for place in span}))


def kept_shares(spans: Mapping[str, Span], layers: Sequence[Kept], n: int) -> dict[str, float] | None:
    """The share of each span's tokens that the compressed layers kept of a context of n tokens, mean over layers.

    Tokens after the context are read through the compressed caches, and stay. None if a layer does not know which
    tokens it kept, since its entries are pooled from several.
    """
    positions = [layer.positions for layer in layers if layer.positions is not None]
    if not layers or len(positions) < len(layers):
        return None
    shares = {}
    for name, (start, end) in spans.items():
        first, last = min(start, n), min(end, n)
        kept = fmean(layer.share(first, last) for layer in positions) if first < last else 0.0
        shares[name] = (kept * (last - first) + (end - start) - (last - first)) / (end - start)
    return shares
