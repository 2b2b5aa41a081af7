"""Records of kind `speed`: times and bytes of one setting at one length and batch."""

from typing import Literal

from kvbench.records.schema.fields import Count, Number, Plain, Text, field
from kvbench.records.schema.record import OfSetting


class SpeedRecord(OfSetting):
    """Time and memory of one setting at one length and batch: medians of repeats, and counted bytes.

    If not even a single sequence fits, the fields from `floored` to `memory` are missing.
    """

    fits: bool = field("whether the batch fits into memory; if not, its times and bytes are null")
    sequences: Count | None = field("sequences in the batch", "sequences")
    floored: bool = field("the requested budget was below the method's minimum, which it kept", optional=True)
    target_missed: bool = field("see kind `method`", since="0.2")
    r1: Number = field("see kind `method`", "1", optional=True)
    r2: Number = field("see kind `method`", "1", optional=True)
    r3: Number = field("see kind `method`", "1", optional=True)
    r: Number = field("see kind `method`", "1", optional=True)
    r_corrected: Number = field("see kind `method`", "1", optional=True)
    r_bytes: Number = field("see kind `method`", "1", optional=True)
    ratio_over: Literal["kv_heads", "query_heads"] = field("see kind `method`", since="0.2")
    r_full: Number = field("see kind `method`", "1", optional=True)
    r_bytes_full: Number = field("see kind `method`", "1", optional=True)
    r_bytes_floor: Number = field("see kind `method`", "1", optional=True)
    window_bytes: Count = field("see kind `method`", "bytes", optional=True)
    state_bytes: Count = field("see kind `method`", "bytes", since="0.2", optional=True)
    stored_bytes: Count = field("bytes of one sequence's compressed cache of the prompt", "bytes", optional=True)
    full_bytes: Count = field("FullKV's cache of the same prompt", "bytes", optional=True)
    memory: Literal["shared", "stream"] = field("stream: layers were compressed during prefill", optional=True)
    decode_tokens: Count = field("see kind `method`; as the following ones of one sequence", "tokens", optional=True)
    decode_byte_steps: Count = field("see kind `method`", "bytes", optional=True)
    decode_bytes_mean: Number = field("see kind `method`", "bytes", optional=True)
    decode_bytes_peak: Count = field("see kind `method`", "bytes", optional=True)
    decode_bytes_end: Count = field("see kind `method`", "bytes", optional=True)
    decode_bytes_read: Number = field("see kind `method`", "bytes", optional=True)
    r_mean: Number = field("see kind `method`", "1", optional=True)
    r_peak: Number = field("see kind `method`", "1", optional=True)
    r_decode_peak: Number = field("see kind `method`", "1", optional=True)
    r_end: Number = field("see kind `method`", "1", optional=True)
    r_read: Number = field("see kind `method`", "1", optional=True)
    prefilled_bytes: Count | None = field("the batch's caches once its prompts are compressed", "bytes")
    decoded_bytes: Count | None = field("the batch's caches after the last token", "bytes")
    peak_cache_bytes: Count | None = field("keys and values at the largest moment, counted", "bytes")
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
