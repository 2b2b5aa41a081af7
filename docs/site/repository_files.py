"""MkDocs hook: files of the repository that the pages link to, outside of docs/, become part of the site.

They lie under repository/ there, and links in both directions are rewritten: a page keeps the relative links with
which it works in a checkout. A link to any other file is an error of the strict build.
"""

import os
import re
from pathlib import Path, PurePosixPath

from mkdocs.structure.files import File

ROOT = Path(__file__).parents[2]
PLACE = "repository"
PAGES = ["CHANGELOG.md", "CONTRIBUTING.md", "scripts/README.md", "results/gpu/prediction.md"]
PAGES += [f"results/gpu/{run}/README.md" for run in ("nvidia-h200", "nvidia-h200-long")]
PAGES += ["results/leaderboard/README.md", "results/leaderboard/leaderboard.md"]
PAGES += [f"results/leaderboard/{model}/leaderboard.md" for model in ("smollm2-135m", "gemma3-270m")]
PAGES += [f"results/leaderboard/qwen2.5-coder-0.5b/{page}.md" for page in ("README", "leaderboard")]
PAGES += ["results/community/README.md", "results/community/leaderboard.md"]
PAGES += ["results/published/README.md", "results/smollm2/README.md"]
PAGES += ["results/engines/README.md", "results/benchmarks/coverage.md"]
PAGES += ["results/engines/server/README.md", "results/engines/served/README.md"]
PAGES += ["results/benchmarks/submissions.md"]
PAGES += ["results/smollm2/first_token/table.md", "results/models/classes.md", "results/models/classes_oldest.md"]
PAGES += ["results/gemma3/README.md", *(f"results/gemma3/{length}/table.md" for length in (4096, 8192, 16384))]
PAGES += ["results/speed/smollm2-135m-cpu/table.md"]
PAGES += ["results/frontier/essays/frontier.md", "results/formats/formats.md", "results/README.md"]
FILES = ["results/**/*.png", "results/benchmarks/*.json"]
FILES += ["results/leaderboard/**/*.csv", "results/leaderboard/**/*.json"]
FILES += ["results/community/**/records.parquet", "results/community/leaderboard.[hc]*", "results/community/**/*.yaml"]
LINK = re.compile(r"(\]\()([^)\s:#]+)((?:#[^)\s]*)?\))")


def on_files(files, config):
    """Add the repository's files to the site's."""
    for path in [*PAGES, *(str(found.relative_to(ROOT)) for pattern in FILES for found in ROOT.glob(pattern))]:
        files.append(File.generated(config, f"{PLACE}/{path}", abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown, page, config, files):
    """Point links at the places that files have on the site."""
    here = PurePosixPath(page.file.src_uri)
    inside = PLACE in here.parts[:1]
    real = here.relative_to(PLACE) if inside else PurePosixPath("docs") / here

    def moved(match: re.Match) -> str:
        target = os.path.normpath(real.parent / match[2])
        if target == "README.md":
            target = "docs/index.md"
        place = target.removeprefix("docs/") if target.startswith("docs/") else f"{PLACE}/{target}"
        if files.get_file_from_path(place) is None:
            return match[0]
        return match[1] + os.path.relpath(place, here.parent) + match[3]

    return LINK.sub(moved, markdown)
