"""One run: from a configuration to a folder of records, tables and figures."""

import sys
import time
import uuid
from collections.abc import Iterable, Sequence
from pathlib import Path

import transformers

from kvbench.benchmarks import Sample
from kvbench.configuration import Configuration
from kvbench.errors import Incomplete, UserError, on_disk
from kvbench.evaluation.check_samples import check_samples, check_windows
from kvbench.evaluation.check_templates import check_templates
from kvbench.evaluation.prompts import AnyModel
from kvbench.evaluation.record import AnyRun, Failure
from kvbench.models import load
from kvbench.ops.operator import use_kernels
from kvbench.records.identity import run_folder
from kvbench.records.samples import write_samples
from kvbench.records.store import Store, keys_in, records_of
from kvbench.runner.busy_cores import use_of_cores, warn_of_busy_cores
from kvbench.runner.manifest import folder_identity, manifest_of, opening, write_again
from kvbench.runner.next_commands import next_commands, print_next
from kvbench.runner.out_of_memory import out_of_memory
from kvbench.runner.own_classes import warn_of_changes
from kvbench.runner.progress import with_progress
from kvbench.runner.request import Request, build_request, check_longest
from kvbench.runner.shards import first_of_each_task, requested_keys, warn_of_lengths
from kvbench.runner.starting_note import begun
from kvbench.runner.torchrun import Group, HandedOver, Outcome
from kvbench.runner.tracking import Tracker
from kvbench.runner.unmeasured import warn_of_unmeasured
from kvbench.utils.console import status, warn
from kvbench.utils.environment import now
from kvbench.utils.hashing import digest
from kvbench.utils.text import count

SMALLER_STEPS = (
    "; decode.batch=1 decodes settings one by one, memory=stream holds one setting at a time. All earlier records are "
    "safe, and the same command continues from there"
)


def run(cfg: Configuration, group: Group | None = None) -> Path:
    """Compute the missing records that a configuration requests; returns the folder of the results.

    Raises UserError before any model is loaded if the configuration is wrong, and Incomplete at the end if records
    could not be made.
    """
    started = time.perf_counter()
    request = build_request(cfg)
    if group is not None and request.kind.timed:
        group.check_timed(cfg.model.device)
    with use_kernels(request.kernels):
        return make_records(cfg, request, load_inputs(request), started, group)


def make_records(
    cfg: Configuration,
    request: Request,
    inputs: tuple[AnyModel, list[Sample]],
    started: float,
    group: Group | None = None,
) -> Path:
    """Compute the missing records of `request` and report; `started` is time.perf_counter() when the run began.

    `inputs` are the result of `load_inputs`, which runs with the same model and benchmark share. In a `group` of
    processes each makes its shard, and the first one reports.
    """
    loaded, samples = inputs
    identity = folder_identity(cfg, loaded, samples, request.benchmark)
    name = run_folder(request.benchmark.name, request.spec.name, identity)
    folder = Path(cfg.output_dir) / name
    run = request.run(f"{now()}-{uuid.uuid4().hex[:12]}", digest(identity), loaded)
    every_sample, samples = samples, first_of_each_task(samples, request.limit)
    kind = request.kind
    check_samples(loaded, run.benchmark, samples, run.question, kind.columns, run.first_token, kind.timed)
    check_templates(loaded, run.benchmark.name, samples, bool(cfg.benchmark.get("thinking")))
    request.kind.check(samples, run.settings, run.distance)
    check_windows(run, samples, folder, kind.timed)
    warn_of_lengths(getattr(request.benchmark, "lengths", []), every_sample, samples, request.limit)
    own_samples = request.shard.samples(every_sample, run.question, request.limit)

    with Store(folder, request.shard.name) as store:
        if store.set_aside:
            warn(f"{store.set_aside} torn record(s) set aside in {store.torn}; they are computed again")
        listed = {sample.id for sample in samples} | store.samples  # of a pack's records, too, which has no rows
        with on_disk(f"write to {folder}"):
            write_samples(folder, [sample for sample in every_sample if sample.id in listed])
        warn_of_changes(run, folder)
        warn_of_unmeasured(run, folder)
        manifest = opening(cfg, run, identity, own_samples, store, request.kind.made_by(run))
        tracker = Tracker(cfg.wandb, f"{name} {request.shard.name}".strip(), folder, warn)
        with tracker, manifest_of(folder, manifest, store, started) as manifest_path:
            begun(cfg)
            tracker.start(manifest)
            own = requested_keys(run, own_samples)
            tracker.resume(record for record in records_of(folder) if record["key"] in own)
            with out_of_memory("making a record", SMALLER_STEPS):
                records = request.kind.evaluate(run, own_samples, store)
                counted = samples if group else own_samples
                estimate = request.kind.estimate(run, own_samples, store.done, request.part)
                failures: list[Failure] = []
                for record in with_progress(records, run, counted, store, failures, estimate, group):
                    tracker.record(record)
            failed, stopped = {failure.key: str(failure) for failure in failures}, []
            if group and not group.first:
                group.hand_over(Outcome(failures=failed))
                if failed:
                    raise HandedOver(failures_line(failed))
                return folder
            if group:
                stopped = join(group, failed)
            write_again(manifest_path, manifest)
            if report_if_complete(request, run, samples, store, tracker, {*failed}):
                print_next(next_commands(cfg, folder, request.kind.goes_on, sys.argv))
            if failed:
                raise Incomplete(failures_line(failed))
            if stopped:
                raise Incomplete(stopped[0])
    return folder


def failures_line(failed: dict[str, str]) -> str:
    return f"{count(len(failed), 'record')} could not be made; the first: {next(iter(failed.values()))}"


def join(group: Group, failed: dict[str, str]) -> list[str]:
    """Add the failures of other processes to `failed`. Returns a line for each process that an error ended."""
    stopped = []
    for rank, outcome in group.outcomes.items():
        failed |= outcome.failures
        for line in outcome.failures.values():
            warn(line)
        if outcome.error is not None:
            stopped.append(f"process {rank} of {group.world}: {outcome.error}")
    return stopped


def load_inputs(request: Request) -> tuple[AnyModel, list[Sample]]:
    """Load the model, or connect its engines, and make the samples."""
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    name = request.spec.name
    with out_of_memory(f"loading {name}"), status(f"loading {name}") as show:
        stand_in = request.kind.stand_in(request.spec, request.settings, request.benchmark)
        before = use_of_cores()
        loaded = stand_in or load(request.spec)
        warn_of_busy_cores(loaded, before)
        check_longest(request.benchmark, loaded.spec)
        show(f"preparing the samples of {request.benchmark.name}")
        made: object = request.benchmark.samples(loaded.tokenizer)
        samples = [*made] if isinstance(made, Iterable) else []  # a generator is read once; None lacks its return
        if not samples:
            raise UserError(f"benchmark {request.benchmark.name} has made no samples")
        if other := next((type(sample).__name__ for sample in samples if not isinstance(sample, Sample)), None):
            raise UserError(f"benchmark {request.benchmark.name} has made a {other} among its samples, not a Sample")
        return loaded, samples


def report_if_complete(
    request: Request, run: AnyRun, samples: Sequence[Sample], store: Store, tracker: Tracker, failed: set[str]
) -> bool:
    """Write tables and figures, without the records that `failed`, if no shard has records left to make; returns
    whether they were written.

    Raises Incomplete if stored records have disappeared.
    """
    folder = store.path.parent
    requested = requested_keys(run, samples) - failed
    if not requested:
        return False
    missing = requested - keys_in(folder)
    if lost := missing & store.done:
        raise Incomplete(
            f"{count(len(lost), 'record')} in {folder} disappeared while kvbench was running, because a file was "
            "changed or removed; the same command makes them again"
        )
    if left := len(missing):
        warn(f"{left} of {len(requested)} records are left to other shards; the last one to end writes the report")
        return False
    with on_disk(f"write the report to {folder}", "; the records are complete"):
        tracker.finish(*request.kind.report(run, folder))
    return True
