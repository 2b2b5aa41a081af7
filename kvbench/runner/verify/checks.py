"""All checks of a folder, in the order of the page."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from kvbench.errors import UserError
from kvbench.runner.verify.check_answers import answers_fit
from kvbench.runner.verify.check_bytes import bytes_fit
from kvbench.runner.verify.check_code import one_code, one_model
from kvbench.runner.verify.check_complete import complete
from kvbench.runner.verify.check_copies import no_copies
from kvbench.runner.verify.check_decoding import decoding_fits
from kvbench.runner.verify.check_fields import fields_fit
from kvbench.runner.verify.check_files import files_are_whole, unreadable
from kvbench.runner.verify.check_loads import loads_fit
from kvbench.runner.verify.check_names import names_fit
from kvbench.runner.verify.check_prompts import prompts_fit
from kvbench.runner.verify.check_runs import keys_fit, runs_agree
from kvbench.runner.verify.check_samples import samples_fit
from kvbench.runner.verify.check_scores import scores_fit
from kvbench.runner.verify.check_times import times_fit
from kvbench.runner.verify.folder import Folder, read
from kvbench.runner.verify.materials import Materials, materials
from kvbench.runner.verify.places import Places
from kvbench.runner.verify.rerun import made_again
from kvbench.runner.verify.rerun_draw import Draw
from kvbench.runner.verify.verdict import Check, judged
from kvbench.utils.text import in_one_line


def verify(path: Path, places: Places | None = None, draw: Draw | None = None) -> list[Check]:
    """Every check of a run's folder or a pack; with a `draw`, also a rerun of some of its samples.

    `places` says where this machine has the run's files: model.path, and benchmark.KEY of its data. Nothing is
    downloaded. A folder that cannot be read, or is too large, has one check with the reason.
    """
    try:
        return checks_of(read(path), places or {}, draw)
    except UserError as error:
        return [unreadable(error)]


def checks_of(folder: Folder, places: Places, draw: Draw | None = None) -> list[Check]:
    """`verify` for a folder that was read."""
    manifest = next(iter(folder.manifests.values()), None)
    its_materials = materials(manifest, places) if manifest else Materials(None, None, ("its manifest",))
    checks: dict[str, Callable[[], Check]] = {
        "fields": partial(fields_fit, folder, its_materials),
        "manifests": partial(runs_agree, folder),
        "keys": partial(keys_fit, folder),
        "names": partial(names_fit, folder),
        "completeness": partial(complete, folder),
        "model": partial(one_model, folder, places),
        "code": partial(one_code, folder),
        "samples": partial(samples_fit, folder, its_materials),
        "prompts": partial(prompts_fit, folder, its_materials),
        "scores": partial(scores_fit, folder, its_materials),
        "answers": partial(answers_fit, folder, its_materials),
        "bytes": partial(bytes_fit, folder, places),
        "decoding": partial(decoding_fits, folder),
        "times": partial(times_fit, folder),
        "copies": partial(no_copies, folder),
    }
    if any(record["kind"] == "serve" for record in folder.records):
        checks["loads"] = partial(loads_fit, folder)
    if draw:
        checks["rerun"] = partial(made_again, folder, its_materials, places, draw)
    return [files_are_whole(folder), *(guarded(name, check) for name, check in checks.items())]


def guarded(name: str, check: Callable[[], Check]) -> Check:
    """A check, or a note that it failed: a stranger's folder can hold values that no check foresees."""
    try:
        return check()
    except Exception as error:
        what = f"{type(error).__name__}: {in_one_line(error)}"
        return judged(name, "what no check foresees", missing=[f"this check cannot be made: {what[:200]}"])
