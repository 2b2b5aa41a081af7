"""Whether the files are whole: records, their checksums, manifests, samples."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from kvbench.errors import UserError
from kvbench.records.store import record_files
from kvbench.runner.verify.folder import Folder
from kvbench.runner.verify.verdict import Check, Verdict, judged
from kvbench.utils.regular_files import open_regular

ABOUT = "schema, checksums, manifests"
SEALED = b', "checksum": "'  # how the last field of a record's line begins


def files_are_whole(folder: Folder) -> Check:
    """Every line is a record that fits its checksum, each once, and every record's run has a manifest."""
    wrong = [f"{finding.kind}: {finding.message}" for finding in folder.findings if finding.wrong]
    copied = [key for key, copies in Counter(record["key"] for record in folder.records).items() if copies > 1]
    if copied:
        wrong.append(f"{len(copied)} record(s) are there more than once, for example {copied[0]}")
    if folder.damaged_samples:
        wrong.append(f"samples.jsonl has {folder.damaged_samples} line(s) that are damaged or a sample's second one")
    unsealed = sum(SEALED not in line[-40:] for path in record_files(folder.path) for line in _lines(path))
    old = all(str(manifest.get("kvbench", "")).startswith("0.1") for manifest in folder.manifests.values())
    missing = [f"{unsealed} record(s) have no checksum"] if unsealed and old else []
    if unsealed and not old:
        wrong.append(f"{unsealed} record(s) have no checksum, which this version of kvbench always writes")
    return judged("files", ABOUT, wrong, missing, Verdict.PROVEN)


def unreadable(error: UserError) -> Check:
    """The only check of a folder that cannot be read."""
    return judged("files", ABOUT, [str(error)])


def _lines(path: Path) -> Iterator[bytes]:
    with open_regular(path) as file:
        yield from file
