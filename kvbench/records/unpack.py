"""`kvbench unpack PACK…`: packs as folders of runs again, in which the runs' commands go on."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kvbench.errors import UserError, on_disk
from kvbench.records.identity import identity_of, run_folder
from kvbench.records.manifest import read_manifests, write_manifest
from kvbench.records.pack import LEFT_OUT
from kvbench.records.record_files import read_pack
from kvbench.records.store import PACK, RECORDS, to_line
from kvbench.utils.arguments import Parser
from kvbench.utils.console import print_line
from kvbench.utils.files import appearing
from kvbench.utils.links import check_held
from kvbench.utils.text import count

EPILOG = """\
The folder has the name that the run's command gives it, so the command that made the records continues there with
output_dir=RUNS: a larger limit=, further methods or ratios make only the records that are missing. The run fills in
what a pack leaves out of its samples; kept_positions of the pack's records stay missing.
"""


def main(arguments: Sequence[str]) -> None:
    parser = Parser("unpack", "Write packs as folders of runs, which their commands continue.", more=EPILOG)
    parser.add_argument("packs", metavar="PACK", type=Path, nargs="+", help="a folder of `kvbench pack`")
    parser.add_argument("--out", metavar="RUNS", type=Path, default=Path("runs"), help="default: %(default)s")
    options = parser.parse(arguments)
    for pack in options.packs:
        print_line(f"{'records':<10} {unpack(pack, options.out)}")


def unpack(pack: Path, runs: Path) -> Path:
    """Write a pack's records and manifests to a new folder in `runs`; returns the folder.

    Raises UserError where `pack` is no pack, is damaged, or does not say all that identifies its run, and where the
    run's folder exists.
    """
    if not (pack / PACK).is_file():
        raise UserError(f"{pack} is no pack: it has no {PACK}")
    check_held(pack)
    records, damaged = read_pack(pack / PACK)
    if damaged or not records or len({record["key"] for record in records}) < len(records):
        raise UserError(
            f"{pack / PACK} has {count(len(records), 'whole record')} and {len(damaged)} damaged; a run continues from "
            "whole records, each of them once"
        )
    manifests, unread = read_manifests(pack)
    names = {name_of(manifest, records[0]) for manifest in manifests.values()}
    if unread or len(names) != 1:
        raise UserError(
            f"the manifests of {pack} are of {count(len(names), 'run folder')}, and {len(unread)} are damaged"
        )
    folder = runs / names.pop()
    if folder.exists():
        raise UserError(f"{folder} exists: name another folder of runs with --out")
    with on_disk(f"write {folder}"), appearing(folder) as work:
        (work / RECORDS).write_bytes(b"".join(map(to_line, records)))
        for number, manifest in enumerate(manifests.values(), 1):
            write_manifest(work / "manifests" / f"{number}.json", manifest)
    return folder


def name_of(manifest: dict[str, Any], record: dict[str, Any]) -> str:
    """The name of the folder of a run, by its manifest and one of its records."""
    identity = identity_of(manifest)
    if LEFT_OUT in json.dumps(identity):
        raise UserError(
            f"run {manifest['run']} was of a model or data whose path is left out, so it cannot be continued"
        )
    return run_folder(record["benchmark"], record["model"], identity)
