"""Which records of probes belong to an experiment, chosen as those of methods are."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

from kvbench.papers.select import as_run, matching, one_provenance, run_folders
from kvbench.probes import build_probes
from kvbench.records import Finding, gather
from kvbench.records.load import refuse


def select_probes(cfg: Mapping, folders: Sequence[str | Path]) -> tuple[dict, pd.DataFrame, list[Finding]]:
    """The configuration that its runs had, their records in the order of its probes, and what was found in them.

    Without records the frame is empty. Raises UserError where runs that no figure should mix belong to it.
    """
    runs = matching(cfg, run_folders(folders))
    if not runs:
        return dict(cfg), pd.DataFrame(), []
    records, findings = gather(*runs)
    refuse(findings)
    order = {(one.name, one.parameters): place for place, one in enumerate(build_probes(cfg["probe"]))}
    place = [order.get(pair) for pair in zip(records["probe"], records["parameters"], strict=True)]
    records = records.assign(place=place).dropna(subset="place")
    records = records[records["folder"].isin([str(folder) for folder in runs])]
    if records.empty:
        return dict(cfg), records, findings
    one_provenance(records, cfg)
    records = records.sort_values(["place", "sample", "folder"], kind="stable", ignore_index=True)
    manifests = [manifest for folder in dict.fromkeys(records["folder"]) for manifest in runs[Path(folder)]]
    return as_run(cfg, manifests), records.drop_duplicates(["place", "sample"], ignore_index=True), findings
