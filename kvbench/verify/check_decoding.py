"""Whether bytes and ratios of decoding follow from each other."""

from collections.abc import Iterator, Mapping
from typing import Any

from kvbench.verify.folder import Folder, named
from kvbench.verify.verdict import Check, judged

EQUAL = 1e-9


def decoding_fits(folder: Folder) -> Check:
    """Each figure of decoding against bytes, passes and FullKV's growth by a token a pass."""
    wrong = []
    for record in folder.methods:
        if "decode_byte_steps" in record:
            wrong += [f"{named(record)}: {line}" for line in _figures(record)]
    return judged("decoding", "bytes held and read while decoding, and their ratios", wrong)


def _figures(record: Mapping[str, Any]) -> Iterator[str]:
    if record["decode_bytes_peak"] > record["peak_cache_bytes"] and record["decode_batch"] == 1:
        yield "its caches had more bytes while decoding than at their largest moment"
    if record["r_peak"] < record["r_decode_peak"] - EQUAL:
        yield "r_peak is below r_decode_peak"
    passes = record["decode_steps"]
    if not passes or record["question_tokens"] or record.get("window_bytes") or record["decode_tokens"] != passes:
        return  # the passes over a question, and what windows held in each, are not in a record
    full = record["full_bytes"]
    token = full // record["prompt_tokens"]
    held, last = passes * full + token * passes * (passes + 1) // 2, full + token * passes
    for name, value in (
        ("decode_bytes_mean", record["decode_byte_steps"] / passes),
        ("r_mean", record["decode_byte_steps"] / held),
        ("r_read", record["decode_bytes_read"] * passes / held),
        ("r_decode_peak", record["decode_bytes_peak"] / last),
        ("r_end", record["decode_bytes_end"] / last),
    ):
        if abs(record[name] - value) > EQUAL * max(1, abs(value)):
            yield f"{name} is {record[name]:.6g}, but its bytes and passes make {value:.6g}"
    if record["decode_bytes_peak"] * passes < record["decode_byte_steps"]:
        yield "it held more bytes on average than at most"
    if record["compress_at"] == "prefill_end" and record["decode_bytes_peak"] < record["stored_bytes"]:
        yield "it held fewer bytes while decoding than of the prompt alone"
