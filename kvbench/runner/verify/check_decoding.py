"""Whether bytes and ratios of decoding follow from each other."""

from collections.abc import Iterator, Mapping
from typing import Any

from kvbench.runner.verify.folder import Folder, named
from kvbench.runner.verify.verdict import Check, Findings, Note, missing, wrong

EQUAL = 1e-9


def decoding_fits(folder: Folder) -> Check:
    """Each figure of decoding against bytes, passes and FullKV's growth by a token a pass."""
    findings = Findings()
    for record in folder.records:
        if record["kind"] == "method":
            findings.collect(named(record), _figures, record)
        else:
            findings.missing.append(f"records of kind {record['kind']} have no figures of decoding to compare")
    return findings.judged("decoding", "bytes held and read while decoding, and their ratios")


def _figures(record: Mapping[str, Any]) -> Iterator[Note]:
    if record["decode_bytes_peak"] > record["peak_cache_bytes"] and record["decode_batch"] == 1:
        yield wrong("its caches had more bytes while decoding than at their largest moment")
    if record["r_peak"] < record["r_decode_peak"] - EQUAL:
        yield wrong("r_peak is below r_decode_peak")
    if (steps := record["decode_steps"]) is None or record.get("window_bytes"):
        yield missing("its passes, or what its windows held in each, are not in its record")
        return
    # a pass reads the question, if there is one, and each other pass a token; caches that take no blocks read the
    # question in a pass for each token
    question, total = record["question_tokens"], record["decode_byte_steps"]
    first, passes = question or 1, steps + (question > 0)
    if question and abs(record["decode_bytes_mean"] * (steps + question) - total) <= EQUAL * total:
        first, passes = 1, steps + question
    if record["decode_tokens"] != (first + passes - 1 if passes else 0):
        yield missing(f"how many of its {record['decode_tokens']} tokens each pass read is not in its record")
        return
    full, n = record["full_bytes"], record["prompt_tokens"]
    token = full // n
    held = passes * full + token * (passes * first + passes * (passes - 1) // 2)
    last = full + token * record["decode_tokens"]
    read = record["decode_bytes_read"] * passes
    if not passes:  # the prompt's cache alone
        passes, held, read = 1, full, record["decode_bytes_read"]
        total = record["decode_bytes_mean"]
    for name, value in (
        ("decode_bytes_mean", total / passes),
        ("r_mean", total / held),
        ("r_read", read / held),
        ("r_decode_peak", record["decode_bytes_peak"] / last),
        ("r_end", record["decode_bytes_end"] / last),
    ):
        if abs(record[name] - value) > EQUAL * max(1, abs(value)):
            yield wrong(f"{name} is {record[name]:.6g}, but its bytes and passes make {value:.6g}")
    if record["decode_bytes_peak"] * passes < total:
        yield wrong("it held more bytes on average than at most")
    if record["compress_at"] == "prefill_end" and record["decode_bytes_peak"] < record["stored_bytes"]:
        yield wrong("it held fewer bytes while decoding than of the prompt alone")
    # each layer reads the entries that layers share, which are held once
    if record["decode_bytes_read"] > record["decode_bytes_peak"] * len(record["kept_per_layer"]):
        yield wrong("it read more bytes in a pass than each of its layers can read of what it held")
    largest = max(record["peak_cache_bytes"], record["decode_bytes_peak"])
    if record["decode_bytes_end"] > record["decode_bytes_peak"] or record["r_peak"] * last > largest * (1 + EQUAL):
        yield wrong("its bytes at the end, or at their largest moment, are more than its caches had")
