"""Tables of engines.py: answers that engines share, and their distances, each with its 95 % interval."""

import math
from collections.abc import Sequence
from itertools import combinations

import pandas as pd

from kvbench.engines.distance import compare
from kvbench.metrics.aggregate import POSITIVE, units
from kvbench.metrics.bootstrap import OF_SCORES, clustered, paired_interval
from kvbench.utils.sequences import common_prefix

# Each engine without compression, in what it computes with.
UNCOMPRESSED = ("full", "llama_cpp f16/f16", "openvino f32", "vllm auto")
# The same format in kvbench and in an engine.
# llama.cpp rotates what it quantises
SAME_FORMAT = {
    "ggml_q8_0": "llama_cpp q8_0/q8_0",
    "ggml_q4_0": "llama_cpp q4_0/q4_0",
    "ggml_q4_0_rotated": "llama_cpp q4_0/q4_0",
    "fp8_unit": "vllm fp8",
}
# What has no upper bound.
IN_NATS = ("kl", "kl_at_least", "nll")


def agreement(records: pd.DataFrame) -> pd.DataFrame:
    """For each setting the share of answers with exactly FullKV's tokens, and the mean score: the exact one, if any."""
    full = records_of(records, "full")["tokens"]
    rows = []
    for setting in records["setting"].unique():
        answers = records_of(records, setting)
        answers = answers.loc[answers.index.intersection(full.index)]
        equal = [tokens == full[sample] for sample, tokens in answers["tokens"].items()]
        name = "exact" if "exact" in answers["scores"].iloc[0] else next(iter(answers["scores"].iloc[0]))
        scores = [values[name] for values in answers["scores"]]
        row = {
            "setting": setting,
            "samples": len(answers),
            **share("equal", equal, answers),
            **share(name, scores, answers),
        }
        rows.append(row)
    return pd.DataFrame(rows)


def between(records: pd.DataFrame) -> pd.DataFrame:
    """For each two engines without compression: the share of equal answers, and of an answer before the first token to
    differ; where both tell their likeliest tokens and the answers are equal, a lower bound of the divergence.
    """
    present = [setting for setting in UNCOMPRESSED if (records["setting"] == setting).any()]
    rows = []
    for a, b in combinations(present, 2):
        first, second = records_of(records, a), records_of(records, b)
        samples = first.index.intersection(second.index)
        first, second = first.loc[samples], second.loc[samples]
        pairs = list(zip(first["tokens"], second["tokens"], strict=True))
        row = {"a": a, "b": b, "samples": len(samples), **share("equal", [p == q for p, q in pairs], first)}
        row |= share("agreed", [agreed(p, q) for p, q in pairs], first)
        bounds = [
            compare(p, q) if equal and p and q else None
            for p, q, equal in zip(tops(first), tops(second), [p == q for p, q in pairs], strict=True)
        ]
        known = pd.Series(bounds, index=samples, dtype=object).dropna()
        if len(known):
            row |= share("kl_at_least", [distance["kl_at_least"] for distance in known], first.loc[known.index])
        rows.append(row)
    return pd.DataFrame(rows)


def distances(records: pd.DataFrame) -> pd.DataFrame:
    """For each setting its distances from its run's first setting: kvbench's from FullKV, an engine's from its own."""
    rows = []
    for setting in records["setting"].unique():
        answers = measured(records_of(records, setting))
        if answers.empty or setting in UNCOMPRESSED:  # first settings, whose distance is none by definition
            continue
        row = {"setting": setting, "samples": len(answers)}
        for name in ("top1", "agreed", "kl", "kl_at_least"):
            if name in answers["distance"].iloc[0]:
                row |= share(name, [distance[name] for distance in answers["distance"]], answers)
        rows.append(row)
    return pd.DataFrame(rows)


def formats(records: pd.DataFrame) -> pd.DataFrame:
    """The same format in kvbench and in an engine, over the same samples: top1 of each, their paired difference, and
    the divergence, which is kvbench's over the whole vocabulary and a lower bound of the engine's.
    """
    rows = []
    for ours, theirs in SAME_FORMAT.items():
        a, b = (measured(records_of(records, setting)) for setting in (ours, theirs))
        samples = a.index.intersection(b.index)
        if samples.empty:
            continue
        a, b = a.loc[samples], b.loc[samples]
        p, q = ([distance["top1"] for distance in side["distance"]] for side in (a, b))
        low, high = paired_interval(p, q, clusters=units(a.reset_index()).tolist())
        row = {"kvbench": ours, "engine": theirs, "samples": len(samples)}
        row |= {**share("kvbench_top1", p, a), **share("engine_top1", q, b)}
        row |= {"difference": (sum(p) - sum(q)) / len(p), "difference_low": low, "difference_high": high}
        row |= share("kvbench_kl", [distance["kl"] for distance in a["distance"]], a)
        row |= share("engine_kl_at_least", [distance["kl_at_least"] for distance in b["distance"]], b)
        rows.append(row)
    return pd.DataFrame(rows)


def texts(records: pd.DataFrame) -> pd.DataFrame:
    """For each setting the perplexity of a text, nats per token, and their paired differences over the same windows:
    from the same engine's uncompressed cache, and from FullKV.
    """
    engines = {name.partition(" ")[0]: name for name in UNCOMPRESSED}
    by_setting = {setting: nll(records, setting) for setting in records["setting"].unique()}
    rows = []
    for setting, answers in by_setting.items():
        row = {"setting": setting, "samples": len(answers), "perplexity": math.exp(answers["nll"].mean())}
        row |= share("nll", answers["nll"], answers)
        for name, other in {"own": engines.get(setting.partition(" ")[0], "full"), "full": "full"}.items():
            base = by_setting[other].loc[answers.index]
            low, high = paired_interval(
                answers["nll"], base["nll"], clusters=units(answers.reset_index()).tolist(), bounds=POSITIVE
            )
            row |= {f"from_{name}": (answers["nll"] - base["nll"]).mean()}
            row |= {f"from_{name}_low": low, f"from_{name}_high": high}
        rows.append(row)
    return pd.DataFrame(rows)


def nll(records: pd.DataFrame, setting: str) -> pd.DataFrame:
    """A setting's records by sample, with the nats per token of each as a column."""
    answers = records_of(records, setting)
    return answers.assign(nll=[distance["nll"] for distance in answers["distance"]])


def records_of(records: pd.DataFrame, setting: str) -> pd.DataFrame:
    """A setting's records by sample."""
    return records[records["setting"] == setting].set_index("sample")


def measured(records: pd.DataFrame) -> pd.DataFrame:
    """The records that have distances."""
    return records[records["distance"].map(lambda distance: isinstance(distance, dict)).astype(bool)]


def tops(records: pd.DataFrame) -> Sequence:
    """The likeliest tokens at each place of each answer; None for an answer without them."""
    lists = records["top"] if "top" in records else [None] * len(records)
    return [tokens if isinstance(tokens, list) else None for tokens in lists]


def agreed(a: Sequence[int], b: Sequence[int]) -> float:
    """The share of the longer answer before the first token that differs."""
    longest = max(len(a), len(b))
    return common_prefix(a, b) / longest if longest else 1.0


def share(name: str, values: Sequence[float], records: pd.DataFrame) -> dict[str, float]:
    """The mean of values of these records, and its interval. Those in nats may lie above 1."""
    values = [float(value) for value in values]
    low, high = clustered(
        [values], [units(records.reset_index()).tolist()], POSITIVE if name.endswith(IN_NATS) else OF_SCORES
    )
    return {name: sum(values) / len(values), f"{name}_low": low, f"{name}_high": high}
