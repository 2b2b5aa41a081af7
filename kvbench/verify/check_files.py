"""Whether the files are whole: records, their checksums, manifests, samples."""

from collections import Counter

from kvbench.records.load import files
from kvbench.records.store import PACK
from kvbench.verify.folder import Folder
from kvbench.verify.verdict import Check, Verdict, judged

SEALED = b', "checksum": "'  # how the last field of a record's line begins


def files_are_whole(folder: Folder) -> Check:
    """Every line is a record that fits its checksum, each once, and every record's run has a manifest."""
    wrong = [f"{finding.kind}: {finding.message}" for finding in folder.findings if finding.wrong]
    again = [key for key, times in Counter(record["key"] for record in folder.records).items() if times > 1]
    if again:
        wrong.append(f"{len(again)} record(s) are there more than once, for example {again[0]}")
    if folder.damaged_samples:
        wrong.append(f"samples.jsonl has {folder.damaged_samples} line(s) that are damaged or a sample's second one")
    unsealed = sum(
        SEALED not in line[-40:]
        for path in files([folder.path])
        if path.name != PACK
        for line in path.read_bytes().splitlines()
    )
    old = all(str(one.get("kvbench", "")).startswith("0.1") for one in folder.manifests.values())
    missing = [f"{unsealed} record(s) have no checksum"] if unsealed and old else []
    if unsealed and not old:
        wrong.append(f"{unsealed} record(s) have no checksum, which this version of kvbench always writes")
    return judged("files", "schema, checksums, manifests", wrong, missing, Verdict.PROVEN)
