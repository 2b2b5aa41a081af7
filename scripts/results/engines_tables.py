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
    full = of(records, "full")["tokens"]
    rows = []
    for setting in records["setting"].unique():
        own = of(records, setting)
        own = own.loc[own.index.intersection(full.index)]
        equal = [tokens == full[sample] for sample, tokens in own["tokens"].items()]
        name = "exact" if "exact" in own["scores"].iloc[0] else next(iter(own["scores"].iloc[0]))
        scores = [one[name] for one in own["scores"]]
        row = {"setting": setting, "samples": len(own), **share("equal", equal, own), **share(name, scores, own)}
        rows.append(row)
    return pd.DataFrame(rows)


def between(records: pd.DataFrame) -> pd.DataFrame:
    """For each two engines without compression: the share of equal answers, and of an answer before the first token to
    differ; where both tell their likeliest tokens and the answers are equal, a lower bound of the divergence.
    """
    there = [setting for setting in UNCOMPRESSED if (records["setting"] == setting).any()]
    rows = []
    for a, b in combinations(there, 2):
        first, second = of(records, a), of(records, b)
        samples = first.index.intersection(second.index)
        first, second = first.loc[samples], second.loc[samples]
        pairs = list(zip(first["tokens"], second["tokens"], strict=True))
        row = {"a": a, "b": b, "samples": len(samples), **share("equal", [p == q for p, q in pairs], first)}
        row |= share("agreed", [agreed(p, q) for p, q in pairs], first)
        found = [
            compare(p, q) if same and p and q else None
            for p, q, same in zip(tops(first), tops(second), [p == q for p, q in pairs], strict=True)
        ]
        told = pd.Series(found, index=samples, dtype=object).dropna()
        if len(told):
            row |= share("kl_at_least", [one["kl_at_least"] for one in told], first.loc[told.index])
        rows.append(row)
    return pd.DataFrame(rows)


def distances(records: pd.DataFrame) -> pd.DataFrame:
    """For each setting its distances from its run's first setting: kvbench's from FullKV, an engine's from its own."""
    rows = []
    for setting in records["setting"].unique():
        own = measured(of(records, setting))
        if own.empty or setting in UNCOMPRESSED:  # first settings, whose distance is none by definition
            continue
        row = {"setting": setting, "samples": len(own)}
        for name in ("top1", "agreed", "kl", "kl_at_least"):
            if name in own["distance"].iloc[0]:
                row |= share(name, [distance[name] for distance in own["distance"]], own)
        rows.append(row)
    return pd.DataFrame(rows)


def formats(records: pd.DataFrame) -> pd.DataFrame:
    """The same format in kvbench and in an engine, over the same samples: top1 of each, their paired difference, and
    the divergence, which is kvbench's over the whole vocabulary and a lower bound of the engine's.
    """
    rows = []
    for ours, theirs in SAME_FORMAT.items():
        a, b = (measured(of(records, setting)) for setting in (ours, theirs))
        samples = a.index.intersection(b.index)
        if samples.empty:
            continue
        a, b = a.loc[samples], b.loc[samples]
        p, q = ([distance["top1"] for distance in one["distance"]] for one in (a, b))
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
    found = {setting: nll(records, setting) for setting in records["setting"].unique()}
    rows = []
    for setting, own in found.items():
        row = {"setting": setting, "samples": len(own), "perplexity": math.exp(own["nll"].mean())}
        row |= share("nll", own["nll"], own)
        for name, other in {"own": engines.get(setting.partition(" ")[0], "full"), "full": "full"}.items():
            base = found[other].loc[own.index]
            low, high = paired_interval(
                own["nll"], base["nll"], clusters=units(own.reset_index()).tolist(), bounds=POSITIVE
            )
            row |= {f"from_{name}": (own["nll"] - base["nll"]).mean()}
            row |= {f"from_{name}_low": low, f"from_{name}_high": high}
        rows.append(row)
    return pd.DataFrame(rows)


def nll(records: pd.DataFrame, setting: str) -> pd.DataFrame:
    """A setting's records by sample, with the nats per token of each as a column."""
    own = of(records, setting)
    return own.assign(nll=[distance["nll"] for distance in own["distance"]])


def of(records: pd.DataFrame, setting: str) -> pd.DataFrame:
    """A setting's records by sample."""
    return records[records["setting"] == setting].set_index("sample")


def measured(records: pd.DataFrame) -> pd.DataFrame:
    """The records that have distances."""
    return records[records["distance"].map(lambda distance: isinstance(distance, dict)).astype(bool)]


def tops(records: pd.DataFrame) -> Sequence:
    """The likeliest tokens at each place of each answer; None where they were not told."""
    found = records["top"] if "top" in records else [None] * len(records)
    return [one if isinstance(one, list) else None for one in found]


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
