"""Whether bytes and ratios of decoding follow from each other."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

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
    # a prompt that ends with a chunk leaves no bytes in layers of chunks, which hold tokens of the answer later
    windows = record.get("window_bytes") or "full_layers" in record or _in_full_windows(record)
    if (steps := record["decode_steps"]) is None or windows:
        yield missing("its passes, or what its windows held in each, are not in its record")
        return
    question, total = record["question_tokens"], record["decode_byte_steps"]
    if record["decode_tokens"] != question + steps:
        yield missing(f"how many of its {record['decode_tokens']} tokens each pass read is not in its record")
        return
    # The answer takes a pass for each token. What is read before it takes one pass; one for each token if the caches
    # take no blocks; and any number in between behind the model's own answers to earlier turns.
    before = min(max(round(total / max(record["decode_bytes_mean"], 1)) - steps, 1), question)
    passes = before + steps
    full, n = record["full_bytes"], record["prompt_tokens"]
    token = full // n
    last = full + token * record["decode_tokens"]
    read = record["decode_bytes_read"] * passes
    least, most = (passes * full + token * tokens for tokens in _tokens(question, before, steps))
    if not passes:  # the prompt's cache alone
        passes, least, most, read = 1, full, full, record["decode_bytes_read"]
        total = record["decode_bytes_mean"]
    held = min(max(total / record["r_mean"], least), most) if record["r_mean"] else most  # by FullKV, over all passes
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


def _in_full_windows(record: Mapping[str, Any]) -> bool:
    """Whether these are figures of FullKV beside itself that stopped growing, as where every layer has a sliding window
    that holds the prompt and not all of the answer: methods compress such layers, so that no field tells of them."""
    beside_itself = all(record[name] == 1 for name in ("r_bytes", "r_mean", "r_read", "r_end"))
    n = record["prompt_tokens"]
    return beside_itself and record["decode_bytes_end"] * n < record["full_bytes"] * (n + record["decode_tokens"])


class Tokens(NamedTuple):
    """Tokens behind the prompt that FullKV holds, summed over all passes."""

    fewest: int
    most: int


def _tokens(question: int, before: int, steps: int) -> Tokens:
    """For `before` passes over `question` tokens, each over some of them, then `steps` passes over a token each."""
    alone = before * (before - 1) // 2
    answer = steps * question + steps * (steps + 1) // 2
    return Tokens(answer + question + alone, answer + before * question - alone)
