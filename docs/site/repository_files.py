"""MkDocs hook: files of the repository that the pages link to, outside of docs/, become part of the site.

They lie under repository/ there: other pages, and all of results/, that the navigation or a page links to, from page
to page. Links in both directions are rewritten: a page keeps the relative links with which it works in a checkout. A
link to any other file, such as code, is an error of the strict build.
"""

import os
import re
from pathlib import Path, PurePosixPath

from mkdocs.structure.files import File

ROOT = Path(__file__).parents[2]
PLACE = "repository"
LINK = re.compile(r"(\]\()([^)\s:#]+)((?:#[^)\s]*)?\))")


def on_files(files, config):
    """Add the repository's files to the site's."""
    for path in sorted(linked([*pages_of(config["nav"]), *(f"docs/{file.src_uri}" for file in files)])):
        files.append(File.generated(config, f"{PLACE}/{path}", abs_src_path=str(ROOT / path)))
    return files


def pages_of(nav) -> list[str]:
    """The repository's files that the navigation names."""
    if isinstance(nav, str):
        return [nav.removeprefix(f"{PLACE}/")] if nav.startswith(f"{PLACE}/") else []
    return [path for part in (nav.values() if isinstance(nav, dict) else nav) for path in pages_of(part)]


def linked(starts: list[str]) -> set[str]:
    """The files outside of docs/ among the starts, and those that they link to."""
    reached, left = set(), list(starts)
    while left:
        path = left.pop()
        if path in reached or not served(path) or not (ROOT / path).is_file():
            continue
        reached.add(path)
        if path.endswith(".md"):
            text = (ROOT / path).read_text(encoding="utf-8")
            left += [target_of(PurePosixPath(path), match[2]) for match in LINK.finditer(text)]
    return {path for path in reached if not path.startswith("docs/")}


def served(path: str) -> bool:
    """Whether the site may have the file."""
    return path != "README.md" and (path.endswith(".md") or path.startswith("results/"))


def target_of(page: PurePosixPath, link: str) -> str:
    """The repository's path that a link of a page leads to."""
    return os.path.normpath(page.parent / link)


def on_page_markdown(markdown, page, config, files):
    """Point links at the places that files have on the site."""
    here = PurePosixPath(page.file.src_uri)
    inside = PLACE in here.parts[:1]
    real = here.relative_to(PLACE) if inside else PurePosixPath("docs") / here

    def moved(match: re.Match) -> str:
        target = target_of(real, match[2])
        if target == "README.md":
            target = "docs/index.md"
        place = target.removeprefix("docs/") if target.startswith("docs/") else f"{PLACE}/{target}"
        if files.get_file_from_path(place) is None:
            return match[0]
        return match[1] + os.path.relpath(place, here.parent) + match[3]

    return LINK.sub(moved, markdown)
