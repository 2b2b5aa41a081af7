"""Whether predictions are the texts of their tokens, and answers are those that the settings can give."""

from collections.abc import Iterator, Mapping
from typing import Any

from kvbench.verify.folder import Folder, named
from kvbench.verify.materials import Materials
from kvbench.verify.verdict import Check, Verdict, judged


def answers_fit(folder: Folder, here: Materials) -> Check:
    """Tokens against predictions, passes and close calls, and each setting's answer against FullKV's."""
    wrong, missing, unread = [], [], 0
    full = {record["sample"]: record for record in folder.methods if is_full(record)}
    for record in folder.methods:
        wrong += [f"{named(record)}: {line}" for line in _counted(record)]
        if record["tokens"] is None:
            missing.append(f"{named(record)}: it has no tokens")
        elif here.tokenizer is None:
            unread += 1
        elif here.tokenizer.decode(record["tokens"], skip_special_tokens=True) != record["prediction"]:
            wrong.append(f"{named(record)}: its prediction is not the text of its tokens")
        if (other := full.get(record["sample"])) and other is not record:
            wrong += [f"{named(record)}: {line}" for line in _beside_full(record, other)]
    if unread:
        missing += here.missing
    if not folder.methods:
        missing.append("there are no predictions")
    return judged("answers", "tokens against predictions, passes and FullKV's answers", wrong, missing, Verdict.PROVEN)


def is_full(record: Mapping[str, Any]) -> bool:
    parameters = record["parameters"]
    return '"_target_": "kvbench.methods.FullKV"' in parameters and '"kvbench.methods.Dense"' in parameters


def _counted(record: Mapping[str, Any]) -> Iterator[str]:
    tokens, steps = record["tokens"], record["decode_steps"]
    if tokens is None or steps is None or not record["answers"]:
        return  # a text that is scored has no answer
    most = record.get("max_new_tokens")
    if isinstance(most, int) and len(tokens) > most:
        yield f"{len(tokens)} tokens are more than {most}"
    if not record["question_tokens"]:
        if steps not in (len(tokens), max(len(tokens) - 1, 0)):
            yield f"{len(tokens)} tokens cannot come from {steps} passes"
        if record.get("decode_tokens", steps) != steps:
            yield f"{record['decode_tokens']} tokens were read in {steps} passes of one token"
    if record["prediction"] and not tokens:
        yield "there is a prediction, but no token"
    if record["r1"] == 1 and record.get("close_cuts"):
        yield f"close cuts in {record['close_cuts']} heads, though nothing was dropped"
    for place in close_places(record):
        if not 0 <= place <= len(tokens):
            yield f"a close call at token {place} of {len(tokens)}"


def close_places(record: Mapping[str, Any]) -> list[int]:
    """Tokens whose choice rounding could change, as far as a record names them."""
    return [] if record.get("close_call") is None else [record["close_call"]]


def _beside_full(record: Mapping[str, Any], full: Mapping[str, Any]) -> Iterator[str]:
    """Tokens that were chosen with the uncompressed cache are FullKV's, and so are all where nothing was dropped."""
    mine, its = record["tokens"], full["tokens"]
    if mine is None or its is None or record.get("sampling") or record["question_tokens"] != full["question_tokens"]:
        return
    if record["prompt_tokens"] != full["prompt_tokens"]:
        yield f"its prompt has {record['prompt_tokens']} tokens, FullKV's {full['prompt_tokens']}"
    if record["memory"] != full["memory"] or record["question_tokens"]:
        return
    same = record["full_cache_tokens"] if record["compress_at"] != "in_prefill" else 0
    if (
        record["r1"] == 1
        and record.get("r_mean") == record.get("r_read") == 1
        and '"kvbench.methods.Dense"' in record["parameters"]
    ):
        same = max(len(mine), len(its))
    safe = min([same, *close_places(record), *close_places(full)])
    if mine[:safe] != its[:safe] and _ends(record)[:safe] != _ends(full)[:safe]:
        yield f"its first {safe} token(s) were chosen with FullKV's cache, but differ from FullKV's"


def _ends(record: Mapping[str, Any]) -> list[int]:
    """The tokens, with -1 for the one that ended them."""
    return [*record["tokens"], *([-1] if record["decode_steps"] == len(record["tokens"]) else [])]
