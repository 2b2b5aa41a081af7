"""All checks of a folder, in the order of the page."""

from pathlib import Path

from kvbench.verify.check_answers import answers_fit
from kvbench.verify.check_bytes import bytes_fit
from kvbench.verify.check_code import one_code, one_model
from kvbench.verify.check_complete import complete
from kvbench.verify.check_copies import no_copies
from kvbench.verify.check_decoding import decoding_fits
from kvbench.verify.check_files import files_are_whole
from kvbench.verify.check_runs import keys_fit, runs_agree
from kvbench.verify.check_samples import samples_fit
from kvbench.verify.check_scores import scores_fit
from kvbench.verify.check_times import times_fit
from kvbench.verify.folder import read
from kvbench.verify.materials import Materials, Places, materials
from kvbench.verify.rerun import made_again
from kvbench.verify.rerun_draw import Draw
from kvbench.verify.verdict import Check


def verify(path: Path, places: Places | None = None, draw: Draw | None = None) -> list[Check]:
    """Every check of a run's folder or a pack; with a `draw`, some of its samples are made again too.

    `places` says where this machine has what the run read: model.path, and benchmark.KEY of its data. Nothing is
    downloaded. Raises UserError where the folder holds no records.
    """
    folder, places = read(path), places or {}
    first = next(iter(folder.manifests.values()), None)
    here = materials(first, places) if first else Materials(None, None, ("its manifest",))
    return [
        files_are_whole(folder),
        runs_agree(folder),
        keys_fit(folder),
        complete(folder),
        one_model(folder, places),
        one_code(folder),
        samples_fit(folder, here),
        scores_fit(folder),
        answers_fit(folder, here),
        bytes_fit(folder),
        decoding_fits(folder),
        times_fit(folder),
        no_copies(folder),
        *([made_again(folder, here, places, draw)] if draw else []),
    ]
