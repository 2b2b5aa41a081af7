"""`kvbench score FOLDER`: score LongBench predictions that are on the disk with the official metrics."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvbench.errors import UserError, on_disk
from kvbench.utils.arguments import Parser
from kvbench.utils.console import out as console
from kvbench.utils.console import print_line
from kvbench.utils.files import write_atomically

if TYPE_CHECKING:
    from kvbench.evaluation.rescore import Scored

OFFICIAL = "task scores × 100, as official scripts give them; means and averages are those of the printed scores"
EPILOG = """\
Predictions are in the official format: one file TASK.jsonl for each task, with one JSON object per line: pred (as
generated), answers, all_classes (trec and lsht) and length (LongBench-E). If the folder has a result.json, its scores
are shown beside ours, and differences are marked with ≠.

In the folder of a kvbench run, the predictions in records.jsonl (of every shard) are scored again and
compared with the scores stored there. A record that was edited is an error.
"""


def main(arguments: Sequence[str]) -> None:
    parser = Parser("score", "Score LongBench predictions with the official metrics.", more=EPILOG)
    parser.add_argument(
        "folder", metavar="FOLDER", type=Path, help="a folder with TASK.jsonl files, or the folder of a kvbench run"
    )
    parser.add_argument(
        "--e",
        action="store_true",
        help="LongBench-E: a score for each range of length (detected for TASK_e.jsonl and under pred_e/)",
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="write the scores as JSON in the format of the official result.json (for a kvbench run, by setting)",
    )
    options = parser.parse(arguments)
    run(options.folder, options.e, options.out)


def run(folder: Path, extended: bool, out: Path | None) -> None:
    """Score a folder, print the table and the differences from existing scores, write the scores."""
    # after the parser: this imports torch, which --help need not wait for
    from kvbench.evaluation import rescore as predictions
    from kvbench.records.record_files import check_name
    from kvbench.records.store import record_files
    from kvbench.report.tables import rescored
    from kvbench.report.tables.task_table import rich_task_table

    if out is not None and not out.parent.is_dir():
        raise UserError(f"--out {out}: there is no folder {str(out.parent)!r}")
    if out is not None:
        check_name(out, [folder])
    if records := record_files(folder):
        if extended:
            raise UserError(f"--e is for TASK.jsonl files; {records[0]} already says which benchmark it is for")
        scored = labelled(predictions.from_records(folder))
        result: dict[str, Any] = {
            name: predictions.official_form(rows) for name, rows in rescored.by_setting(scored).items()
        }
        frame, notes = rescored.table(scored), rescored.compare_records(scored)
    else:
        files, extended = predictions.find(folder, extended)
        if out is not None and out.resolve() in {path.resolve() for path in files.values()}:
            raise UserError(f"--out {out} holds predictions that are scored: choose another name")
        published = predictions.published(folder)
        scored = predictions.from_files(files, extended)
        result = predictions.official_form(scored)
        frame, notes = rescored.compare_published(rescored.table(scored, published), published, predictions.RESULT)
    if out is not None:
        with on_disk(f"write --out {out}"):
            write_atomically(out, json.dumps(result, ensure_ascii=False, indent=4) + "\n")
    console.print(rich_task_table(frame, OFFICIAL, digits=2))
    for note in notes:
        print_line(note)


def labelled(scored: "Sequence[Scored]") -> "list[Scored]":
    """The predictions under labels of their settings, as a run's own tables have them."""
    from kvbench.report.page.labels import Variant, labels_of

    variants = [Variant.of(vars(prediction)) for prediction in scored]
    labels = labels_of(variants)
    return [replace(prediction, setting=labels[variant]) for prediction, variant in zip(scored, variants, strict=True)]
