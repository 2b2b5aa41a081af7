"""Records of kind `speed`: times and bytes of one setting at one length and batch."""

from collections.abc import Mapping
from typing import Any, Literal

from kvbench.records.schema.caches import Decoding, Ratios, where_it_fits
from kvbench.records.schema.fields import Count, Number, Plain, Text, field
from kvbench.records.schema.record import OfSetting


class SpeedRecord(where_it_fits(Decoding), where_it_fits(Ratios), OfSetting):  # type: ignore[misc]
    """Time and memory of one setting at one length and batch: medians of repeats, and counted bytes.

    Fields from `floored` to `r_read` are of one sequence, as in kind `method`. If the batch does not fit, those after
    `memory` are missing; if not even a single sequence fits, all of them.
    """

    @classmethod
    def due(cls, node: Mapping[str, Any]) -> frozenset[str]:
        """Also the fields of a sequence: all of them if the batch fits, or if one of their group is present."""
        groups = [group for group in (Ratios, Decoding) if node.get("fits") or group.always() & node.keys()]
        return super().due(node).union(*(group.always() for group in groups))

    fits: bool = field("whether the batch fits into memory; if not, its times and bytes are null")
    sequences: Count | None = field("sequences in the batch", "sequences")
    prefilled_bytes: Count | None = field("the batch's caches once its prompts are compressed", "bytes")
    decoded_bytes: Count | None = field("the batch's caches after the last token", "bytes")
    peak_cache_bytes: Count | None = field(
        "keys, values and states of all layers at the largest moment, counted", "bytes"
    )
    peak_device_bytes: Count | None = field("the GPU allocator's peak, model included; null on a CPU", "bytes")
    prefill_seconds: Number | None = field("median, one sequence", "s")
    compress_seconds: Number | None = field("median, one sequence", "s")
    allocation_seconds: Number | None = field("median, of compress_seconds: tokens per layer; null if no rule", "s")
    first_token_seconds: Number | None = field("median, one sequence: prefill and compression", "s")
    latency_seconds: Number | None = field("median, whole batch: its prompts one after the other, decoding", "s")
    decode_tokens_per_s: Number | None = field("of the whole batch: sequences · decode_steps / decode_seconds", "1/s")
    spread_seconds: dict[Text, dict[Text, Number]] = field("median, min, max and interquartile range by time", "s")
    repeats_seconds: dict[Text, list[Number]] = field("every repeat by time", "s")
    decode_engine: Literal["graph", "fused", "eager"] | None = field("see kind `method`", optional=True)
    stacked_layers: Count | None = field("layers that answer the batch with one attention call", "layers")
    largest_batch: Count | None = field("largest batch that fits; null if not searched for", "sequences")
    places: list[Count] = field("the setting's place in the order of each round", "index")
    largest_how: Text = field("tried on the GPU, or counted from bytes")
    conditions: dict[Text, Plain] = field("load, clocks and governor before and after the rounds")
    beside: list[Text] = field("labels of the settings measured in the same rounds")
