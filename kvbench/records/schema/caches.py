"""Ratios and bytes of one sequence's caches, in records of kinds `method` and `speed`."""

from copy import copy
from typing import Any, Literal

from pydantic import create_model

from kvbench.records.schema.fields import Count, Number, Strict, field


class Ratios(Strict):
    """The compressed cache of the prompt beside FullKV's."""

    floored: bool = field("the requested budget was below the method's minimum, which it kept")
    target_missed: bool = field(
        "the method searches for the requested ratio, and no eviction came within 1 % of it", since="0.2"
    )
    r1: Number = field("retained vectors / all vectors, mean over layers", "1")
    r2: Number = field("codebook entries / retained vectors, mean over layers; 1 without a codebook", "1")
    r3: Number = field("size of a stored vector or entry, as formula 15 prints it / raw vector, mean over layers", "1")
    r: Number = field("reserve ratio, SpindleKV's formula 15: mean over layers of r1·r2·r3", "1")
    r_corrected: Number = field("r with references and magnitudes paid per retained vector", "1")
    r_bytes: Number = field("stored_bytes / full_bytes", "1")
    ratio_over: Literal["kv_heads", "query_heads"] = field(
        "heads whose vectors r, r1 and r2 count: the model's KV heads, or its query heads where each stores its own",
        since="0.2",
    )
    r_full: Number = field(
        "r of the compressed layers alone; missing where methods compress every layer", "1", optional=True
    )
    r_bytes_full: Number = field(
        "r_bytes of the compressed layers alone: the requested ratio and papers refer to these; missing where methods "
        "compress every layer",
        "1",
        optional=True,
    )
    r_bytes_floor: Number = field(
        "window_bytes / full_bytes: no method can bring r_bytes lower; missing where methods compress every layer",
        "1",
        optional=True,
    )
    window_bytes: Count = field(
        "bytes of the prompt in layers that no method compresses (with a sliding window or a state of fixed size), "
        "part of stored_bytes and full_bytes; missing without such layers",
        "bytes",
        optional=True,
    )
    state_bytes: Count = field(
        "bytes of the states of layers with linear attention, state spaces or convolutions, part of window_bytes; "
        "missing where no layer has one",
        "bytes",
        since="0.2",
        optional=True,
    )
    stored_bytes: Count = field("bytes of the prompt's compressed cache", "bytes")
    full_bytes: Count = field("FullKV's cache of the same prompt", "bytes")
    memory: Literal["shared", "stream"] = field("shared: one prefill for all settings; stream: layer by layer")


class Decoding(Strict):
    """Bytes while decoding beside FullKV's at the same passes."""

    decode_tokens: Count = field("tokens read after prefill, including a hidden question", "tokens", since="0.2")
    decode_byte_steps: Count = field("sum over the passes after prefill of the bytes held", "bytes", since="0.2")
    decode_bytes_mean: Number = field(
        "mean over these passes; without any pass, the bytes of the prompt's cache", "bytes", since="0.2"
    )
    decode_bytes_peak: Count = field("most bytes held, from the end of prefill on", "bytes", since="0.2")
    decode_bytes_end: Count = field("bytes held after the last pass", "bytes", since="0.2")
    decode_bytes_read: Number = field("bytes that attention reads, mean over these passes", "bytes", since="0.2")
    r_mean: Number = field("bytes held / FullKV's, both summed over the passes after prefill", "1", since="0.2")
    r_peak: Number = field("most bytes held, prefill and compression included / FullKV's at the end", "1", since="0.2")
    r_decode_peak: Number = field("decode_bytes_peak / FullKV's at the end", "1", since="0.2")
    r_end: Number = field("decode_bytes_end / FullKV's at the end", "1", since="0.2")
    r_read: Number = field("bytes read / FullKV's, both summed over the passes after prefill", "1", since="0.2")


def where_it_fits(shared: type[Strict]) -> type[Strict]:
    """The same fields for records of kind `speed`, which lack them where nothing fits."""
    fields: dict[str, Any] = {}
    for name, info in shared.model_fields.items():
        info = copy(info)
        assert isinstance(info.json_schema_extra, dict), "as `field` makes it"
        info.default, info.description = None, "see kind `method`"
        info.json_schema_extra = {**info.json_schema_extra, "since": "", "always": False}
        fields[name] = (info.annotation, info)
    return create_model(shared.__name__, __base__=Strict, **fields)
