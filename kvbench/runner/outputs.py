"""The outputs of a run: tables and figures of all records in its folder, including those of earlier runs.

All files are written before anything is printed, so that a closed terminal or pipe costs none of them.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from kvbench.configuration import Configuration, Experiment, ModelSpec
from kvbench.evaluation.check_templates import SWITCH
from kvbench.evaluation.record import AnyRun
from kvbench.metrics.aggregate import DISTANCES, check_breakdown, measured, with_distances
from kvbench.models import weights_format
from kvbench.papers.captions import caption, title
from kvbench.papers.comparison import compare_speed
from kvbench.papers.runs import as_run
from kvbench.records import check as check_records
from kvbench.records import gather
from kvbench.records.load import refuse
from kvbench.records.manifest import read_manifests
from kvbench.records.progress import unfinished
from kvbench.records.provenance import dtype, with_folder
from kvbench.records.store import PATTERN, record_files
from kvbench.report.page.labels import as_requested
from kvbench.report.tables.conclusion import conclusion
from kvbench.report.tables.differences import (
    against,
    alone_note,
    baseline_alone,
    difference_table,
    full_of,
    pairs,
    write_differences,
)
from kvbench.report.tables.run_table import run_table, summarise, write_run_table
from kvbench.report.tables.serve_table import notes as serving_notes
from kvbench.report.tables.serve_table import serve_table, serving, write_serving
from kvbench.report.tables.span_table import span_table
from kvbench.report.tables.speed_table import by_machine, notes, published_table, speed_table, speeds, write_published
from kvbench.report.tables.task_table import of_one, rich_task_table, write_task_table
from kvbench.report.tables.text_latex import text_latex
from kvbench.report.tables.text_table import TextTable, write_table
from kvbench.runner import run_figures
from kvbench.utils.console import out, print_line, warn
from kvbench.utils.files import write_atomically
from kvbench.utils.text import count

# Tables by name, and the files written: tables and figures.
Outputs = tuple[dict[str, pd.DataFrame], list[Path]]


# Distances from FullKV that the printed table has; table.csv has all.
SHOWN = ("top1", "kl", "kl_at_least", "bits_per_byte", "perplexity")


def report(run: AnyRun, folder: Path) -> Outputs:
    """The table of settings, the table by task if there are tasks, and the benchmark's figures."""
    records, title = records_of(run, folder)
    caption = stamped(run, folder, protocol_caption(run, records, title, "when compressing"))
    tasks = run.benchmark.breakdown(records)
    with_all, distances = with_distances(records)
    with_all, every = measured(with_all, [*run.benchmark.metrics, *distances])
    summary = summarise(with_all, every)
    if "nll" in every:  # of a text: that of all its scored tokens, of which windows have equally many
        summary["perplexity"] = np.exp(summary["nll"])
        every.append("perplexity")
    metrics = [name for name in every if name in SHOWN or name not in DISTANCES]
    written = write_run_table(summary, metrics, folder, caption)
    if tasks is not None:
        check_breakdown(tasks, type(run.benchmark).__name__)
        tasks = of_one(tasks)
        written += write_task_table(tasks, summary, folder, caption)
    written += run_figures.score(with_all, every, folder / "score", caption)
    if (grid := run.benchmark.heatmap(records)) is not None:
        written += run_figures.heatmaps(grid, folder / "heatmap", caption)
    table = run_table(summary, metrics, caption)
    written += write_latex(table, folder / "table.tex")
    compared = pairs(with_all, metrics[0], baseline_alone(with_all))
    written += write_comparison(with_all, compared, metrics[0], folder)
    tables = [table]
    if (spans := span_table(summary)) is not None:
        tables.append(spans)
        write_below(spans, folder)
    for table in tables:
        out.print(table.rich())
    if tasks is not None:
        out.print(rich_task_table(tasks))
    print_paths(written, folder)
    for sentence in conclusion(with_all, compared, metrics[0], summary.set_index("setting")[summary["bytes"].iloc[0]]):
        print_line(sentence)
    return {"settings": summary, **({} if tasks is None else {"tasks": tasks.reset_index()})}, written


def write_comparison(records: pd.DataFrame, every: pd.DataFrame, metric: str, folder: Path) -> list[Path]:
    """The pairs of settings in differences.csv, and the others' differences from FullKV, or from the only setting that
    they are compared with, below the run's own table."""
    if every.empty:
        return []
    baseline = full_of(records) or baseline_alone(records)
    if baseline is not None and len(compared := against(every, baseline)):
        table = difference_table(compared, metric)
        write_below(replace(table, notes=[*table.notes, *filter(None, [alone_note(records)])]), folder)
    return write_differences(every, folder)


def write_below(table: TextTable, folder: Path) -> None:
    """Another table below the run's own in table.md and table.tex."""
    for path, text in ((folder / "table.md", table.markdown()), (folder / "table.tex", text_latex(table))):
        write_atomically(path, path.read_text(encoding="utf-8") + "\n" + text)


def report_probes(run: AnyRun, folder: Path) -> Outputs:
    """The figures of the observations, layer by layer."""
    records, title = records_of(run, folder)
    caption = stamped(run, folder, protocol_caption(run, records, title, "while observed"))
    written = run_figures.probes(records, folder, caption)
    print_paths(written, folder)
    return {}, written


def report_speed(run: AnyRun, folder: Path, paper: Experiment | None) -> Outputs:
    """The table of each machine and the bars of speed and memory; `paper` is the experiment whose published values
    stand beside ours."""
    records, title = records_of(run, folder)
    caption = stamped(run, folder, run_caption(run, title))
    frame = speeds(records)
    by_one = [(times := speeds(group), notes(group, times)) for group in by_machine(records)]
    tables = [speed_table(times, caption, footnotes, wide=False) for times, footnotes in by_one]
    whole, *others = [speed_table(times, caption, footnotes) for times, footnotes in by_one]
    written = write_table(frame, whole, folder) + write_latex(whole, folder / "table.tex")
    for table in others:
        write_below(table, folder)
    written += run_figures.speed(records, folder / "speed", caption)
    if paper is not None:
        compared, used = compare_speed(frame, paper, records["model"].iloc[0])
        if len(compared):
            written += write_published(compared, used, paper, folder)
            tables.append(published_table(compared, used, paper))
    for table in tables:
        out.print(table.rich())
    print_paths(written, folder)
    return {}, written


def report_serving(run: AnyRun, folder: Path) -> Outputs:
    """The table of servers under load."""
    records, title = records_of(run, folder)
    caption = stamped(run, folder, run_caption(run, title, f"prompts of {records['prompts_of'].iloc[0]}"))
    frame = serving(records)
    footnotes = serving_notes(records, frame)
    written = write_serving(frame, folder, caption, footnotes)
    written += write_latex(serve_table(frame, caption, footnotes), folder / "table.tex")
    out.print(serve_table(frame, caption, footnotes, wide=False).rich())
    print_paths(written, folder)
    return {"settings": frame}, written


def records_of(run: AnyRun, folder: Path) -> tuple[pd.DataFrame, str]:
    """All records of the folder, setting after setting, and the title of the experiment that they are of.

    A setting's label names the parameters in which it differs from another of its name. The title is empty for a run
    of no experiment, and where the folder has settings that are none of this run's.
    """
    records, findings = gather(folder)
    refuse(findings)
    manifests, _ = read_manifests(folder)
    records = as_requested(records, manifests.values())
    settings = set(zip(records["setting"], records["parameters"], strict=True))
    added = [label[len(name) :] for label, name in zip(records["label"], records["setting"], strict=True)]
    names = {
        name: [of.removesuffix(more) + more for of, more in zip(records[name], added, strict=True)]
        for name in ("method", "probe")
        if name in records
    }
    records = records.assign(setting=records["label"], **names).drop(columns="label")
    for finding in [*findings, *check_records(records)]:
        warn(finding.message)
    if not settings <= {(setting.label, setting.parameters) for setting in run.settings}:
        return records, ""
    made_by = [manifests[run_id] for run_id in records["run"].unique() if run_id in manifests]
    return records, title(as_run(Configuration.from_plain(manifests[run.id]["config"]), made_by))


def stamped(run: AnyRun, folder: Path, caption: str) -> str:
    """The caption, after what is missing where not all requested records are there."""
    return " · ".join(filter(None, (unfinished(folder, run.id), caption)))


def protocol_caption(run: AnyRun, records: pd.DataFrame, title: str, when: str) -> str:
    """The caption with the protocol and the number of samples."""
    first = "" if run.first_token == "full" else "first token through the compressed cache"
    thinking = (run.loaded.spec.template_args or {}).get(SWITCH)
    thinks = "" if thinking is None else f"thinking {'on' if thinking else 'off'}"
    samples = count(records["sample"].nunique(), "sample")
    return run_caption(run, title, *filter(None, (f"question {run.question} {when}", first, thinks, samples)))


def run_caption(run: AnyRun, title: str, *rest: str) -> str:
    """The caption of a run: the experiment if there is one, benchmark and model, and `rest`.

    The folder of model.path is named: by the title, or else beside the model.
    """
    model = run.loaded.spec.name if title else model_name(run.loaded.spec)
    weights = {"dtype": str(run.loaded.dtype)} | weights_format.manifest_fields(run.loaded.config)
    return caption(title, run.benchmark.name, model, dtype(weights) or "", *rest)


def model_name(spec: ModelSpec) -> str:
    """The model's name, `with_folder`."""
    return with_folder(spec.name, vars(spec), Path(spec.path).resolve().name if spec.path else None)


def write_latex(table: TextTable, path: Path) -> list[Path]:
    write_atomically(path, text_latex(table))
    return [path]


def print_paths(written: Sequence[Path], folder: Path) -> None:
    """The files written and the records, a line each."""
    for path in written:
        print_line(f"{'figure' if path.suffix in {'.png', '.pdf'} else 'table':<8} {path}")
    files = record_files(folder)
    print_line(f"{'records':<8} {files[0] if len(files) == 1 else folder / PATTERN}")
