"""A run's columns about other engines: bytes by their source, and samples that were asked twice."""

import pandas as pd

from kvbench.report.tables.text_table import MISSING

BYTES = (
    "cache bytes: counted in kvbench's own caches of the prompt; stated: what the engine's type takes for the prompt's "
    "tokens; reported: the engine's whole buffer, by its own words"
)
SOURCES = {"stored_bytes": "counted", "stated_bytes": "stated", "reported_bytes": "reported"}
KL = "kl_at_least: lower bound of the divergence (nats per token) from its run's first setting, along that answer"


def has_engines(records: pd.DataFrame) -> bool:
    """Whether any record is another engine's."""
    return "kind" in records and bool(records["kind"].eq("engine").any())


def of_engines(group: pd.DataFrame) -> dict[str, object]:
    """Columns of one setting's row beside those of methods: mean bytes with their source, and repeated answers."""
    means = {name: group[name].mean() for name in SOURCES if name in group and group[name].notna().any()}
    text = ", ".join(f"{mean:,.0f} {SOURCES[name]}" for name, mean in means.items())
    repeated = [node for node in group["repeated"] if isinstance(node, dict)]
    twice = {"asked_twice": len(repeated), "same_twice": sum(bool(node.get("equal")) for node in repeated)}
    compared = group["equal"].dropna() if "equal" in group else []
    beside = {"compared": len(compared), "equal_answers": sum(map(bool, compared))} if len(compared) else {}
    served = served_tokens(group)
    return {"cache_bytes": text or MISSING, **twice, **beside, **({"served": served} if served else {})}


def served_tokens(group: pd.DataFrame) -> str:
    """Mean tokens of prompts in a server's own template, and in kvbench's; "" if the template is kvbench's."""
    if "served_tokens" not in group or not (known := group["served_tokens"].notna()).any():
        return ""
    served, prompt = (group.loc[known, name].mean() for name in ("served_tokens", "prompt_tokens"))
    return f"{served:,.0f} and {prompt:,.0f}"


def engine_notes(summary: pd.DataFrame) -> list[str]:
    """Remarks below a table with engines."""
    asked = summary[summary["asked_twice"] > 0]
    parts = (f"{row.setting} {row.same_twice} of {row.asked_twice}" for row in asked.itertuples())
    notes = [f"equal answers to samples that were asked twice: {', '.join(parts)}"] if len(asked) else []
    if "compared" in summary:
        known = summary.dropna(subset="compared").itertuples()
        equal = (f"{row.setting} {row.equal_answers:.0f} of {row.compared:.0f}" for row in known)
        notes.append(f"answers equal to those of the first engine: {', '.join(equal)}")
    if "served" in summary:
        each = (f"{row.setting} {row.served}" for row in summary[summary["served"].notna()].itertuples())
        notes.append(f"mean prompt tokens in the server's template, and in kvbench's: {', '.join(each)}")
    return [*notes, *[KL] * ("kl_at_least" in summary)]
