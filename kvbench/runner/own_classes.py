"""The user's own files that make a run's records: their hashes, and a warning where one has changed since."""

import sys
from pathlib import Path
from typing import Any

from kvbench.evaluation.record import AnyRun
from kvbench.records.manifest import read_manifests
from kvbench.utils.console import warn
from kvbench.utils.imported_files import imported_hash
from kvbench.utils.own_code import is_users
from kvbench.utils.versions import parts, versions


def own_code(run: AnyRun) -> dict[str, str]:
    """SHA-256 of the files of the user's own classes that make a run's records, by module."""
    return _code(run.benchmark) | {module: sha for setting in run.settings for module, sha in _code(setting).items()}


def warn_of_changes(run: AnyRun, folder: Path) -> None:
    """Warn of the files that had other contents when records of the same settings and versions were made."""
    of_benchmark = _code(run.benchmark)
    of_settings = [(versions(vars(setting)).items(), _code(setting)) for setting in run.settings]
    if not any((of_benchmark, *(code for _, code in of_settings))):
        return
    changed: set[str] = set()
    for manifest in read_manifests(folder)[0].values():
        if manifest.get("records") == 0:
            continue
        earlier, recorded = manifest.get("own_code") or {}, (manifest.get("versions") or {}).get("settings") or {}
        # another version makes records of other keys, or for a benchmark in another folder
        same = [code for named, code in of_settings if named <= recorded.items()]
        for code in (of_benchmark, *same):
            changed |= {module for module, sha in code.items() if earlier.get(module, sha) != sha}
    for name in sorted(str(sys.modules[module].__file__) for module in changed):
        warn(
            f"{Path(name).name} changed since records of this folder were made: raise the `version` of its class, or "
            "choose another output_dir"
        )


def _code(maker: Any) -> dict[str, str]:
    """SHA-256 of the files that define the classes of a setting or benchmark, of its parts, and their bases.

    Classes of kvbench and of plug-ins have versions, and those of a notebook no file. Raises UserError for a file that
    was edited after its class was imported.
    """
    kinds = {kind for part in (maker, *vars(maker).values(), *parts(vars(maker))) for kind in type(part).__mro__}
    hashes = {}
    for kind in sorted(kinds, key=lambda kind: kind.__module__):
        file = getattr(sys.modules.get(kind.__module__), "__file__", None)
        if file and is_users(file) and Path(file).is_file():
            hashes[kind.__module__] = imported_hash(kind)
    return hashes
