"""Links in folders of data: a file that a folder names and does not hold is not read into samples or pages."""

from pathlib import Path

from kvbench.errors import UserError


def held(path: Path, folder: Path) -> Path:
    """The path of a file of `folder`, itself. Raises UserError for a link to a file outside of the folder.

    The folder itself may be a link, and one of the hub's cache has its files in the repository's `blobs`.
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
