"""Whether predictions are the texts of their tokens, and each setting can give its answers."""

from collections.abc import Iterator, Mapping
from typing import Any

from transformers import PreTrainedTokenizerBase

from kvbench.evaluation.settings import Setting
from kvbench.methods.facts import never_full
from kvbench.records.identity import is_full_record, setting_hash
from kvbench.runner.verify.folder import Folder, named
from kvbench.runner.verify.materials import Materials
from kvbench.runner.verify.requested import requested
from kvbench.runner.verify.verdict import Check, Findings, Note, Verdict, missing, wrong


def answers_fit(folder: Folder, materials: Materials) -> Check:
    """Tokens against predictions, passes and close calls, and each setting's answer against FullKV's."""
    findings, unread = Findings(), 0
    full = {record["sample"]: record for record in folder.methods if is_full_record(record)}
    answered = [record for record in folder.records if "prediction" in record]
    for record in answered:
        if record["kind"] == "method":
            findings.collect(named(record), _counted, record)
        if record["tokens"] is None:
            findings.missing.append(f"{named(record)}: it has no tokens")
        elif materials.tokenizer is None:
            unread += 1
        else:
            findings.collect(named(record), _read, record, materials.tokenizer)
        if record["kind"] != "method":
            findings.missing.append("another engine's answers have no FullKV beside them")
        elif (other := full.get(record["sample"])) is None:
            findings.missing.append(f"{named(record)}: there is no answer of FullKV beside it")
        elif other is not record:
            findings.collect(named(record), _beside_full, record, other, _setting(folder, record))
    if unread:
        findings.missing += materials.missing
    if not answered:
        findings.missing.append("there are no predictions")
    return findings.judged("answers", "tokens against predictions, passes and FullKV's answers", Verdict.PROVEN)


def _setting(folder: Folder, record: Mapping[str, Any]) -> Setting | None:
    """The setting that made a record; None where it cannot be built here."""
    manifest = folder.manifests.get(record["run"])
    return None if manifest is None else requested(manifest).settings.get(setting_hash(record))


def _read(record: Mapping[str, Any], tokenizer: PreTrainedTokenizerBase) -> Iterator[Note]:
    tokens, most = record["tokens"], len(tokenizer)
    if not all(0 <= token < most for token in tokens):
        yield wrong(f"its tokens are not among the {most:,} of the model")
    elif tokenizer.decode(tokens, skip_special_tokens=True) != record["prediction"]:
        yield wrong("its prediction is not the text of its tokens")


def _counted(record: Mapping[str, Any]) -> Iterator[Note]:
    tokens, steps = record["tokens"], record["decode_steps"]
    if record["r1"] == 1 and record.get("close_cuts"):
        yield wrong(f"close cuts in {record['close_cuts']} heads, though nothing was dropped")
    if tokens is None or steps is None:
        yield missing("it does not say its passes")
        return
    if not record["answers"]:
        return  # a text that is scored has no answer; `samples` compares them
    most = record.get("max_new_tokens")
    if isinstance(most, int) and len(tokens) > most:
        yield wrong(f"{len(tokens)} tokens are more than {most}")
    if not record["question_tokens"]:  # `prompts` counts them
        if steps not in (len(tokens), max(len(tokens) - 1, 0)):
            yield wrong(f"{len(tokens)} tokens cannot come from {steps} passes")
        if record.get("decode_tokens", steps) != steps:
            yield wrong(f"{record['decode_tokens']} tokens were read in {steps} passes of one token")
    if record["prediction"] and not tokens:
        yield wrong("there is a prediction, but no token")
    for place in close_places(record):
        if not 0 <= place <= len(tokens):
            yield wrong(f"a close call at token {place} of {len(tokens)}")


def close_places(record: Mapping[str, Any]) -> list[int]:
    """The tokens of a record whose choice rounding could change."""
    return [] if record.get("close_call") is None else [record["close_call"]]


def _beside_full(record: Mapping[str, Any], full: Mapping[str, Any], setting: Setting | None) -> Iterator[Note]:
    """Tokens chosen with the uncompressed cache are FullKV's, and so are all tokens where nothing was dropped."""
    tokens, full_tokens = record["tokens"], full["tokens"]
    if tokens is None or full_tokens is None:
        yield missing("its tokens or FullKV's are not there to be compared")
        return
    # `prompts` counts prompts and questions again, and `samples` compares draws
    if record.get("sampling") or record["question_tokens"]:
        return
    if record["question_tokens"] != full["question_tokens"]:
        yield wrong(f"{record['question_tokens']} tokens of its question, but {full['question_tokens']} of FullKV's")
    if record["prompt_tokens"] != full["prompt_tokens"]:
        yield wrong(f"its prompt has {record['prompt_tokens']} tokens, FullKV's {full['prompt_tokens']}")
    if record["memory"] != full["memory"]:
        yield missing(f"it was made with memory={record['memory']}, FullKV's answer with {full['memory']}")
        return
    bound = record["full_cache_tokens"] if record["compress_at"] != "in_prefill" else 0  # the method's, see `manifests`
    if record["r1"] == 1 and record.get("r_mean") == record.get("r_read") == 1:
        if setting is None:
            yield missing("its setting is not built here: tokens of a whole cache are not compared with FullKV's")
        elif not never_full(setting.method):
            bound = max(len(tokens), len(full_tokens))
    safe = min([bound, *close_places(record), *close_places(full)])
    if tokens[:safe] != full_tokens[:safe] and _ends(record)[:safe] != _ends(full)[:safe]:
        yield wrong(f"its first {safe} token(s) were chosen with FullKV's cache, but differ from FullKV's")
    elif safe < bound and tokens[:bound] != full_tokens[:bound]:
        yield missing(f"rounding could change its tokens from number {safe}, and they differ from FullKV's")


def _ends(record: Mapping[str, Any]) -> list[int]:
    """The tokens, with -1 for the token that ended them."""
    return [*record["tokens"], *([-1] if record["decode_steps"] == len(record["tokens"]) else [])]
