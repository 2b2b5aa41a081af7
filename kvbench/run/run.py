"""From a resolved configuration to a folder of records, tables and figures, told to the user as it goes."""

import time
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
import transformers
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from kvbench.benchmarks import Sample
from kvbench.benchmarks.base import PLACES, data_hash
from kvbench.errors import UserError, on_disk
from kvbench.evaluation.prompts import together
from kvbench.evaluation.record import Run
from kvbench.models import LoadedModel, load
from kvbench.models.folder import model_identity
from kvbench.records.manifest import end_manifest, write_manifest
from kvbench.records.samples import write_samples
from kvbench.records.store import Store, keys_in
from kvbench.run.job import begun, ended_by, place
from kvbench.run.request import Asked, asked
from kvbench.run.tracking import Tracker
from kvbench.utils.console import err, warn
from kvbench.utils.environment import environment, now
from kvbench.utils.hashing import digest
from kvbench.utils.signals import unbroken
from kvbench.utils.text import count

FEWER_AT_ONCE = (
    "; decode.batch=1 decodes settings one by one, memory=stream holds one setting at a time. All earlier records are "
    "safe, and the same command goes on from there"
)


def run(cfg: dict) -> Path:
    """Everything `python -m kvbench` does after the configuration is composed; the folder of the results.

    Raises UserError before any model is loaded where the configuration is at fault.
    """
    started = time.perf_counter()
    what = asked(cfg)
    loaded, samples = prepare(what)
    identity = provenance(cfg, loaded, samples)
    name = f"{what.kind.folder}{what.benchmark.name}-{what.spec.name}-{digest(identity)[:8]}"
    folder = Path(cfg["output_dir"]) / name
    samples = first(samples, cfg["limit"])
    mine = part(samples, cfg)

    with Store(folder, shard_name(cfg)) as store:
        how = {"memory": cfg["memory"], "question": cfg["question"], "batch": str(cfg["decode"]["batch"])}
        run_id = f"{now()}-{uuid.uuid4().hex[:12]}"
        run = Run(run_id, digest(identity), loaded, what.benchmark, what.settings, **how)
        if store.set_aside:
            tell(f"{store.set_aside} torn record(s) set aside in {store.torn}; they are made again")
        wanted = keys(run, mine)
        manifest = {"run": run.id, "started": now(), "status": "running", "config": cfg, **identity}
        manifest |= {"settings": [setting.label for setting in run.settings], **place(), **environment()}
        # kvbench.status tells from these how far a run is, and a killed one has come
        manifest |= {"asked": [digest(setting.key) for setting in run.settings]}
        manifest |= {"wanted": len(wanted), "there": len(wanted & store.done)}
        path = folder / "manifests" / f"{run.id.replace(':', '')}.json"
        with on_disk(f"write to {folder}"):
            write_samples(folder, samples)
        write_manifest(path, manifest)
        begun(cfg)
        tracker = Tracker(cfg["wandb"], f"{name} {shard_name(cfg)}".strip(), manifest, folder, tell)
        try:
            work(what, run, mine, store, tracker)
            report_when_whole(what, run, samples, folder, tracker)
            manifest["status"] = "finished"
        except BaseException as error:
            manifest |= ended_by(error)
            raise
        finally:
            manifest |= {
                "ended": now(),
                "wall_seconds": round(time.perf_counter() - started, 1),
                "records": store.made,
            }
            with unbroken():
                end_manifest(path, manifest)
                tracker.close(failed=manifest["status"] != "finished")
    return folder


def prepare(what: Asked) -> tuple[LoadedModel, list[Sample]]:
    """Load the model and make the samples."""
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    with memory_full(f"loading {what.spec.name}"), err.status(f"loading {what.spec.name}") as status:
        loaded = load(what.spec)
        status.update(f"preparing the samples of {what.benchmark.name}")
        return loaded, what.benchmark.samples(loaded.tokenizer)


def keys(run: Run, samples: Sequence[Sample]) -> set[str]:
    """The keys of all records that samples and settings make."""
    return {run.key(sample, setting) for sample in samples for setting in run.settings}


def first(samples: Sequence[Sample], limit: int | None) -> list[Sample]:
    """The first `limit` samples of every task, in their order; all for None."""
    seen: Counter = Counter()
    chosen = []
    for sample in samples:
        seen[task := sample.meta.get("task")] += 1
        if limit is None or seen[task] <= limit:
            chosen.append(sample)
    return chosen


def shard_name(cfg: dict) -> str:
    """Empty for a run in one piece."""
    return "" if cfg["shards"] == 1 else f"{cfg['shard']}-of-{cfg['shards']}"


def part(samples: Sequence[Sample], cfg: dict) -> list[Sample]:
    """This shard's samples: those that may share a context stay together, and so do all settings of one."""
    groups = together(samples, cfg["question"])[cfg["shard"] :: cfg["shards"]]
    return [sample for group in groups for sample in group]


def provenance(cfg: dict, loaded: LoadedModel, samples: Sequence[Sample]) -> dict:
    """What records must share to lie in one folder. Method and ratio are not in it: each record has its own."""
    commit = getattr(loaded.model.config, "_commit_hash", None)
    return {
        "model": model_identity(loaded.source, commit or loaded.spec.revision),
        "chat_template": loaded.spec.chat_template,
        "dtype": str(loaded.model.dtype),
        "device": loaded.model.device.type,
        "benchmark": {key: value for key, value in cfg["benchmark"].items() if key not in PLACES | {"about"}},
        "data_sha256": data_hash(samples),
        "question": cfg["question"],
        # peaks and timings of the two modes do not belong in one table
        **({} if cfg["memory"] == "shared" else {"memory": cfg["memory"]}),
        **({"records": "probes"} if cfg["probe"] else {}),
    }


def work(what: Asked, run: Run, samples: Sequence[Sample], store: Store, tracker: Tracker) -> None:
    """Make what is missing under a progress bar."""
    wanted = keys(run, samples)
    done = len(wanted & store.done)
    if done:
        tell(f"{done} of {len(wanted)} records are there already and are not made again")
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
        with memory_full("making a record", FEWER_AT_ONCE):
            for record in what.kind.evaluate(run, samples, store):
                progress.update(task, advance=1, description=f"{record['sample']} · {record['setting']}")
                tracker.record(record)
        progress.update(task, description=f"{count(len(samples), 'sample')} × {count(len(run.settings), 'setting')}")


@contextmanager
def memory_full(doing: str, then: str = "") -> Iterator[None]:
    """A GPU that has no memory left as a UserError; what torch says of it begins with how much was wanted."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        wanted = ". ".join(str(error).strip().split(". ")[:2])
        raise UserError(f"the GPU's memory is full while {doing}: {wanted}{then}") from error


def report_when_whole(what: Asked, run: Run, samples: Sequence[Sample], folder: Path, tracker: Tracker) -> None:
    """Report once no other shard has records left to make."""
    wanted = keys(run, samples)
    if left := len(wanted - keys_in(folder)):
        tell(f"{left} of {len(wanted)} records are left to other shards; the last one to end reports")
        return
    with on_disk(f"write the report to {folder}", "; the records are complete"):
        tracker.finish(*what.kind.report(run, samples, folder, what.title))


def tell(message: str) -> None:
    """A line for the user, beside what the command prints."""
    warn(message)
