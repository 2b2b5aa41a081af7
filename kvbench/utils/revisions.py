"""Revisions of repositories of the hub, whose libraries join them to paths of their cache as they are."""

from pathlib import PurePosixPath

from kvbench.errors import UserError


def checked_revision(revision: str) -> str:
    """A branch, a tag or a commit. Raises UserError for a text that would lead out of the hub's cache."""
    path = PurePosixPath(revision)
    if not revision or path.is_absolute() or ".." in path.parts:
        raise UserError(f"revision {revision!r} must be a branch, a tag or a commit of the hub")
    return revision
