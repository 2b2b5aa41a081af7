"""The user's own classes that make a run's records: hashes of their files, and a warning where one may have changed."""

import sys
from pathlib import Path
from typing import Any

from kvbench.evaluation.record import AnyRun
from kvbench.records.manifest import read_manifests
from kvbench.utils.console import warn
from kvbench.utils.imported_files import imported_hash
from kvbench.utils.own_code import is_users
from kvbench.utils.versions import parts, versions

OTHERWISE = "raise the `version` of its class, or choose another output_dir"


def own_code(run: AnyRun) -> dict[str, str]:
    """SHA-256 of the files of the user's own classes that make a run's records, by module."""
    return _code(run.benchmark) | {module: sha for setting in run.settings for module, sha in _code(setting).items()}


def warn_of_changes(run: AnyRun, folder: Path) -> None:
    """Warn of the files that had other contents when records of the same settings and versions were made, and of the
    classes without a file that made some: of these nobody knows."""
    made_by = [run.benchmark, *run.settings]
    # another version makes records of other keys, or for a benchmark in another folder
    named = [{}.items(), *(versions(vars(setting)).items() for setting in run.settings)]
    own = [(names, _code(maker), _without_file(maker)) for names, maker in zip(named, made_by, strict=True)]
    if not any(code or classes for _, code, classes in own):
        return
    changed, unknown = set[str](), set[str]()
    for manifest in read_manifests(folder)[0].values():
        if manifest.get("records") == 0:
            continue
        earlier, recorded = manifest.get("own_code") or {}, (manifest.get("versions") or {}).get("settings") or {}
        for _, code, classes in (one for one in own if one[0] <= recorded.items()):
            changed |= {module for module, sha in code.items() if earlier.get(module, sha) != sha}
            unknown |= classes
    for name in sorted(str(sys.modules[module].__file__) for module in changed):
        warn(f"{Path(name).name} changed since records of this folder were made: {OTHERWISE}")
    for name in sorted(unknown):
        warn(
            f"{name} is in no file, so an edit since records of this folder were made is not seen, and these are not "
            f"made again: {OTHERWISE}"
        )


def _code(maker: Any) -> dict[str, str]:
    """SHA-256 of the files that define the user's classes in `maker`.

    Classes of kvbench and of plug-ins have versions, and those of a notebook no file. Raises UserError for a file that
    was edited after its class was imported.
    """
    hashes = {}
    for kind in sorted(_classes(maker), key=lambda kind: kind.__module__):
        file = getattr(sys.modules.get(kind.__module__), "__file__", None)
        if file and is_users(file) and Path(file).is_file():
            hashes[kind.__module__] = imported_hash(kind)
    return hashes


def _without_file(maker: Any) -> set[str]:
    """The names of the classes in `maker` that a notebook or an interactive Python defines."""
    interactive = not hasattr(sys.modules["__main__"], "__file__")
    return {kind.__name__ for kind in _classes(maker) if interactive and kind.__module__ == "__main__"}


def _classes(maker: Any) -> set[type[Any]]:
    """The classes of a setting or benchmark, of its parts, and their bases."""
    return {kind for part in (maker, *vars(maker).values(), *parts(vars(maker))) for kind in type(part).__mro__}
