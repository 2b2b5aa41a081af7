"""Links in folders of data: a file outside of a folder that links to it is not read into samples or pages."""

from pathlib import Path

from kvbench.errors import UserError


def held(path: Path, folder: Path) -> Path:
    """`path`, a file of `folder`. Raises UserError for a link to a file outside of the folder.

    The folder itself may be a link. In the hub's cache, files may also be in the repository's `blobs`.
    """
    top, real = folder.resolve(), path.resolve()
    roots = [top, *(parent.parent / "blobs" for parent in top.parents if parent.name == "snapshots")]
    if not any(real.is_relative_to(root) for root in roots):
        raise UserError(f"{path} is a link to a file outside of {folder}: copy the file, which kvbench does not follow")
    return path


def check_held(folder: Path) -> None:
    """Raise UserError for the first link below a folder that leads out of it."""
    for path in sorted(folder.rglob("*")):
        if path.is_symlink():
            held(path, folder)
