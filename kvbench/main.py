"""From a resolved configuration to a folder of records, tables and figures, told to the user as it goes."""

import time
import uuid
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import transformers
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from kvbench import speed
from kvbench.benchmarks import Benchmark, Sample, Speed
from kvbench.benchmarks.base import data_hash
from kvbench.errors import UserError, on_disk
from kvbench.experiment import Experiment, chosen_methods
from kvbench.methods.base import at_least, choice
from kvbench.models import LoadedModel, ModelSpec, load
from kvbench.passes import MEMORY
from kvbench.prompts import QUESTION, together
from kvbench.report.breakdown import rich_breakdown, write_breakdown
from kvbench.report.caption import title
from kvbench.report.table import rich_table, summarise, write_table
from kvbench.results import check as check_records
from kvbench.results import gather
from kvbench.results.load import refuse
from kvbench.results.manifest import end_manifest, environment, model_identity, now, write_manifest
from kvbench.results.store import Store, keys
from kvbench.runner import BATCH, Run, evaluate
from kvbench.settings import Setting, build, build_settings, digest

out = Console()
err = Console(stderr=True)


def run(cfg: dict) -> Path:
    """Everything `python -m kvbench` does after the configuration is composed; the folder of the results.

    Raises UserError before any model is loaded where the configuration is at fault.
    """
    started = time.perf_counter()
    experiment = title(cfg)  # first: it complains where the experiment is at fault
    settings = build_settings(chosen_methods(cfg), cfg["ratio"], cfg["budget"])
    benchmark: Benchmark = build(cfg["benchmark"], "benchmark")
    spec = ModelSpec(**{key: value for key, value in cfg["model"].items() if key != "about"})
    check(settings, benchmark, spec, cfg["limit"])
    if isinstance(benchmark, Speed):
        speed.check(cfg["question"], cfg["memory"])
    check_memory(cfg["memory"], settings)
    choice("question", cfg["question"], QUESTION)
    choice("decode.batch", str(cfg["decode"]["batch"]), BATCH)
    check_shard(cfg["shard"], cfg["shards"])

    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    with err.status(f"loading {spec.name}"):
        loaded = load(spec)
        samples = benchmark.samples(loaded.tokenizer)
    identity = provenance(cfg, loaded, samples)
    folder = Path(cfg["output_dir"]) / f"{benchmark.name}-{spec.name}-{digest(identity)[:8]}"
    samples = first(samples, cfg["limit"])
    mine = part(samples, cfg)

    with Store(folder, shard_name(cfg)) as store:
        run_id = f"{now()}-{uuid.uuid4().hex[:12]}"
        how = {"memory": cfg["memory"], "question": cfg["question"], "batch": str(cfg["decode"]["batch"])}
        run = Run(run_id, digest(identity), loaded, benchmark, settings, **how)
        if store.set_aside:
            err.print(f"{store.set_aside} torn record(s) set aside in {store.torn}; they are made again")
        manifest = {"run": run.id, "started": now(), "status": "running", "config": cfg, **identity}
        manifest |= {"settings": [setting.label for setting in settings], **environment()}
        path = folder / "manifests" / f"{run.id.replace(':', '')}.json"
        write_manifest(path, manifest)
        try:
            work(run, mine, store)
            manifest["status"] = "finished"
        except BaseException as error:
            manifest["status"] = f"stopped by {type(error).__name__}"
            raise
        finally:
            manifest |= {
                "ended": now(),
                "wall_seconds": round(time.perf_counter() - started, 1),
                "records": store.made,
            }
            end_manifest(path, manifest)
        wanted = {run.key(sample, setting) for sample in samples for setting in run.settings}
        if left := len(wanted - keys(folder)):
            err.print(f"{left} of {len(wanted)} records are left to other shards; the last one to end reports")
        else:
            with on_disk(f"write the report to {folder}", "; the records are complete"):
                report(run, samples, folder, experiment, Experiment.of(cfg))
    return folder


def check(settings: Sequence[Setting], benchmark: Benchmark, spec: ModelSpec, limit: object) -> None:
    """What can be known to be wrong before a model is loaded."""
    if not settings:
        raise UserError("no method is chosen: method=NAME or 'method=[NAME,NAME]'")
    if limit is not None:
        at_least("limit", limit, 1)
    if benchmark.longest > spec.max_length:
        raise UserError(
            f"the longest prompt of {benchmark.name} with its answer takes {benchmark.longest} tokens, but "
            f"{spec.name} reads at most {spec.max_length}"
        )


def first(samples: Sequence[Sample], limit: int | None) -> list[Sample]:
    """The first `limit` samples of every task, in their order; all for None."""
    seen: Counter = Counter()
    chosen = []
    for sample in samples:
        seen[task := sample.meta.get("task")] += 1
        if limit is None or seen[task] <= limit:
            chosen.append(sample)
    return chosen


def check_shard(shard: object, shards: object) -> None:
    at_least("shards", shards, 1)
    if isinstance(shard, bool) or not isinstance(shard, int) or not 0 <= shard < shards:
        raise UserError(f"shard={shard} is none of the {shards}: 0 to {shards - 1}")


def shard_name(cfg: dict) -> str:
    """Empty for a run in one piece."""
    return "" if cfg["shards"] == 1 else f"{cfg['shard']}-of-{cfg['shards']}"


def part(samples: Sequence[Sample], cfg: dict) -> list[Sample]:
    """This shard's samples: those that may share a context stay together, and so do all settings of one."""
    groups = together(samples, cfg["question"])[cfg["shard"] :: cfg["shards"]]
    return [sample for group in groups for sample in group]


def check_memory(memory: str, settings: Sequence[Setting]) -> None:
    """`stream` frees what other settings would need, so it runs one; and only layers that need no other layer."""
    choice("memory", memory, MEMORY)
    if memory == "shared":
        return
    if len(settings) != 1:
        raise UserError(
            f"memory=stream measures one setting at a time, not {len(settings)}: name one method with one ratio "
            "or budget, for example method=snapkv ratio=0.2"
        )
    if not settings[0].method.layerwise:
        raise UserError(f"memory=stream cannot run {settings[0].name!r}, whose layers are compressed together")


def provenance(cfg: dict, loaded: LoadedModel, samples: Sequence[Sample]) -> dict:
    """What records must share to lie in one folder. Method and ratio are not in it: each record has its own."""
    commit = getattr(loaded.model.config, "_commit_hash", None)
    return {
        "model": model_identity(loaded.source, commit or loaded.spec.revision),
        "chat_template": loaded.spec.chat_template,
        "dtype": str(loaded.model.dtype),
        "device": loaded.model.device.type,
        "benchmark": {key: value for key, value in cfg["benchmark"].items() if key != "about"},
        "data_sha256": data_hash(samples),
        "question": cfg["question"],
        # peaks and timings of the two modes do not belong in one table
        **({} if cfg["memory"] == "shared" else {"memory": cfg["memory"]}),
    }


def work(run: Run, samples: Sequence[Sample], store: Store) -> None:
    """Make what is missing under a progress bar."""
    wanted = [run.key(sample, setting) for sample in samples for setting in run.settings]
    done = sum(key in store.done for key in wanted)
    if done:
        err.print(f"{done} of {len(wanted)} records are there already and are not made again")
    columns = [
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("records"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    ]
    with Progress(*columns, console=err) as progress:
        task = progress.add_task(run.benchmark.name, total=len(wanted), completed=done)
        for record in (speed.evaluate if isinstance(run.benchmark, Speed) else evaluate)(run, samples, store):
            progress.update(task, advance=1, description=f"{record['sample']} · {record['setting']}")
        progress.update(task, description=f"{len(samples)} samples × {len(run.settings)} settings")


def report(run: Run, samples: Sequence[Sample], folder: Path, experiment: str, paper: Experiment | None = None) -> None:
    """Table and figures over exactly this run's samples and settings, from the records on the disk.

    `experiment` leads the caption; empty for a run of none. `paper` is that experiment.
    """
    records, findings = gather(folder)
    refuse(findings)
    order = {run.key(sample, setting): i for i, setting in enumerate(run.settings) for sample in samples}
    records = records[records["key"].isin(order)]
    records = records.iloc[records["key"].map(order).argsort(kind="stable")]
    for finding in [*findings, *check_records(records)]:
        err.print(finding.message, markup=False, highlight=False, soft_wrap=True)
    caption = f"{experiment} · " if experiment else ""
    caption += f"{run.benchmark.name} · {run.loaded.spec.name} ({str(run.loaded.model.dtype).removeprefix('torch.')})"
    if isinstance(run.benchmark, Speed):
        shown, written = speed.present(records, folder, caption, paper)
        out.print(shown)
        return tell(written, folder)
    caption += f" · question {run.question} when compressing · {len(samples)} samples"
    metrics = run.benchmark.metrics
    summary = summarise(records, metrics)
    out.print(rich_table(summary, metrics, caption))
    written = write_table(summary, metrics, folder, caption)
    tasks = run.benchmark.breakdown(records)
    if tasks is not None:
        out.print(rich_breakdown(tasks))
        written += write_breakdown(tasks, folder, caption)
    written += run.benchmark.draw(records, folder, caption)
    tell(written, folder)


def tell(written: Sequence[Path], folder: Path) -> None:
    """Where everything is."""
    for path in written:
        out.print(f"{_kind(path):<8} {path}", highlight=False, soft_wrap=True)
    out.print(f"{'records':<8} {folder / 'records.jsonl'}", highlight=False, soft_wrap=True)


def _kind(path: Path) -> str:
    return "figure" if path.suffix in {".png", ".pdf"} else "table"
