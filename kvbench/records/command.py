"""`kvbench records FOLDER…`: the contents of folders of records, and whether they are consistent."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
from rich import box
from rich.table import Table

from kvbench.errors import UserError, on_disk
from kvbench.records.consistency import BESIDE_NAME, CELL, TABLE, Finding, by_data, check, of_setting, tables_of
from kvbench.records.copies import set_copies_aside
from kvbench.records.export import write_csv, write_parquet
from kvbench.records.load import files, gather, refuse
from kvbench.records.manifest import read_manifests
from kvbench.records.record_files import check_name
from kvbench.records.recorded_configuration import recorded
from kvbench.records.store import PACK, lock_path, shard_name
from kvbench.utils.arguments import Parser
from kvbench.utils.console import out, print_line
from kvbench.utils.locks import held
from kvbench.utils.text import count, duration

KINDS = """\
findings, one line each; ! marks problems:
  torn       lines that are not records (a kill, a full disk); a problem unless their records were made again
  edited     records that were changed after they were written; a problem unless they were made again
  manifest   a manifest is damaged or missing, so that the origin of records is unknown
  duplicate  records that exist twice with the same outcome; one is kept
  outcome    records that exist twice and contradict each other; nothing is exported before --set-aside-copies
             keeps the first, or one of two folders is left out
  data       several data sets have samples of the same names: each is a separate table
  settings   several settings of one name, with other parameters: tables give each a row
  conflict   several rows for one sample and setting: other weights, data, dtype, device or code
  mixed      one table's settings come from other code, machines or weights

exit code: 0, 1 if there is a problem, or 2 for a mistake in the command
"""


def main(arguments: Sequence[str]) -> int:
    """The exit code."""
    parser = Parser(
        "records",
        "Report the contents and problems of folders of records (runs, or folders of runs); export them.",
        more=KINDS,
    )
    parser.add_argument(
        "folder", metavar="FOLDER", nargs="*", default=["runs"], help="a folder of runs, or of one run; default: runs"
    )
    parser.add_argument(
        "--csv",
        metavar="FILE",
        type=Path,
        help="write all records as one table for spreadsheets: an apostrophe precedes text that looks like a formula",
    )
    parser.add_argument(
        "--parquet",
        metavar="FILE",
        type=Path,
        help="write all records as one table with lists and mappings; a column of several types is text of JSON",
    )
    parser.add_argument(
        "--set-aside-copies",
        action="store_true",
        help="of records that exist twice in one run's folder keep the first, whatever the others say: those move to "
        "records*.torn",
    )
    options = parser.parse(arguments)
    for path in filter(None, (options.csv, options.parquet)):
        check_name(path, options.folder)
    if options.csv and options.parquet and options.csv.resolve() == options.parquet.resolve():
        raise UserError(f"--csv and --parquet both write {options.csv}: choose another name for one of them")
    if options.set_aside_copies:
        set_aside(options.folder)
    records, findings = gather(*options.folder)
    findings += check(records)
    summarise(records, files(options.folder), findings)
    if options.csv or options.parquet:
        refuse(findings)
    for path, write in ((options.csv, write_csv), (options.parquet, write_parquet)):
        if path:
            write(records, path)
            print_line(f"{'written':<10} {path}")
    return int(any(finding.wrong for finding in findings))


def set_aside(folders: Sequence[str]) -> None:
    for folder in dict.fromkeys(path.parent for path in files(folders) if path.name != PACK):
        with on_disk(f"write to {folder}"):
            moved = set_copies_aside(folder)
        for path, number in moved.items():
            print_line(f"{'set aside':<10} {count(number, 'record')} that had a copy before, in {path}")


def summarise(records: pd.DataFrame, paths: Sequence[Path], findings: Sequence[Finding]) -> None:
    folders = sorted({path.parent for path in paths})
    runs = {run: attempt for folder in folders for run, attempt in attempts(folder).items()}.values()
    outcomes = Counter(run.status for run in runs)
    told = f": {', '.join(f'{n} {status}' for status, n in outcomes.items())}" if runs else ""
    print_line(f"{'records':<10} {len(records):,} in {count(len(paths), 'file')} of {count(len(folders), 'folder')}")
    print_line(f"{'runs':<10} {len(runs)}{told}")
    if times := [run.seconds for run in runs if run.seconds is not None]:
        unknown = (
            f"; without {count(len(runs) - len(times), 'run')} that recorded none" if len(times) < len(runs) else ""
        )
        print_line(f"{'time':<10} {duration(sum(times))}, the sum over the runs{unknown}")
    if {*CELL} - {*BESIDE_NAME} <= {*records}:
        out.print(tables(records))
    for finding in findings:
        print_line(f"{finding.kind:<9}{'!' if finding.wrong else ' '} {finding.message}")
    wrong = sum(finding.wrong for finding in findings)
    print_line(f"{count(wrong, 'problem')} found" if wrong else "no problem found")


class Attempt(NamedTuple):
    """One run of a folder, as its manifest tells it."""

    status: str
    seconds: float | None  # how long it took; None: not recorded, as where it was killed


def attempts(folder: Path) -> dict[str, Attempt]:
    """Every run of a folder by its id, which a pack has too.

    A run whose manifest says running was killed, unless a process holds its shard's lock and no later run took it.
    """
    manifests = list(read_manifests(folder)[0].values())
    shards = [shard_of(manifest) for manifest in manifests]
    last = {shard: number for number, shard in enumerate(shards)}
    runs = {}
    for number, (manifest, shard) in enumerate(zip(manifests, shards, strict=True)):
        status = manifest.get("status", "unknown")
        alive = status == "running" and last[shard] == number and held(lock_path(folder, shard))
        told = "killed" if status == "running" and not alive else status
        runs[manifest["run"]] = Attempt(told, manifest.get("wall_seconds"))
    return runs


def shard_of(manifest: dict[str, Any]) -> str:
    config = recorded(manifest)
    return shard_name(config.shard, config.shards)


def tables(records: pd.DataFrame) -> Table:
    """A row for each possible table: its samples, settings, records and missing records; data sets apart."""
    if (probes := records["kind"] == "probe").any():  # they make a table of their own
        records = records.assign(benchmark=records["benchmark"].where(~probes, records["benchmark"] + " (probes)"))
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for name in TABLE:
        table.add_column(name)
    for name in ("samples", "settings", "records", "missing"):
        table.add_column(name, justify="right", no_wrap=True)
    for rows in (part for group in tables_of(records) for part in by_data(group)):
        setting = of_setting(rows)
        samples, settings = rows["sample"].nunique(), len(rows.drop_duplicates(setting))
        missing = samples * settings - len(rows.drop_duplicates(["sample", *setting]))
        table.add_row(*map(str, rows[TABLE].iloc[0]), *(f"{n:,}" for n in (samples, settings, len(rows), missing)))
    return table
