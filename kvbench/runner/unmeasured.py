"""A warning where a run measures distances from FullKV and its folder has records without one."""

from pathlib import Path

from kvbench.evaluation.record import AnyRun
from kvbench.records.manifest import read_manifests
from kvbench.records.recorded_configuration import recorded
from kvbench.utils.console import warn


def warn_of_unmeasured(run: AnyRun, folder: Path) -> None:
    """Warn of records that an earlier run made without distances: records that exist are not made again."""
    if not run.distance:
        return
    by_default = not run.benchmark.metrics  # what distance=auto is for the folder's benchmark
    for manifest in read_manifests(folder)[0].values():
        chosen = recorded(manifest).distance
        if manifest.get("records") and not (by_default if chosen == "auto" else chosen):
            warn("records of this folder were made without distance=true and stay so: another output_dir measures them")
            return
