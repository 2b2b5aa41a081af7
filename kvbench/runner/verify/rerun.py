"""A few samples of a folder, made again here under all of its settings and compared with its records."""

from collections.abc import Sequence
from typing import Any

from kvbench.errors import UserError
from kvbench.ops.operator import use_kernels
from kvbench.records.identity import setting_hash
from kvbench.runner.out_of_memory import out_of_memory
from kvbench.runner.verify.folder import Folder, named
from kvbench.runner.verify.materials import Materials
from kvbench.runner.verify.places import Places
from kvbench.runner.verify.reach import within_reach
from kvbench.runner.verify.rerun_answers import answers, rounded_otherwise
from kvbench.runner.verify.rerun_compare import differing, judge, unlike
from kvbench.runner.verify.rerun_draw import Draw
from kvbench.runner.verify.rerun_model import NotHere, how_of, the_manifest, the_run, the_settings
from kvbench.runner.verify.verdict import Check, Verdict, shortened
from kvbench.utils.text import count, in_one_line

NAME = "rerun"


def made_again(folder: Folder, materials: Materials, places: Places, draw: Draw) -> Check:
    """The drawn samples' answers, tokens, bytes and scores, made again and compared with the folder's.

    WRONG for a difference that rounding cannot explain; UNPROVEN where it may, or where this machine lacks something.
    """
    names = draw.samples(folder.methods)
    samples = {record["sample"] for record in folder.methods}
    about = f"{len(names)} of {count(len(samples), 'sample')} made again here, drawn with --nonce {draw.nonce}"
    try:
        with within_reach(places):
            return _made_again(folder, materials, places, names, about)
    except NotHere as reason:
        return _none(str(reason))
    except Exception as error:  # a stranger's configuration can raise anything in classes and libraries
        return _none(f"{type(error).__name__}: {in_one_line(error)[:200]}")


def _none(reason: str) -> Check:
    return Check(NAME, Verdict.UNPROVEN, "samples made again here: none was", (reason,))


def _made_again(folder: Folder, materials: Materials, places: Places, names: Sequence[str], about: str) -> Check:
    manifest, settings = the_manifest(folder), the_settings(folder)
    drawn = [record for record in folder.methods if record["sample"] in names]
    chosen = {key: settings[key] for key in dict.fromkeys(map(setting_hash, drawn)) if key in settings}
    run = the_run(manifest, list(chosen.values()), materials, places, any(record.get("distance") for record in drawn))
    samples = [sample for sample in materials.samples or () if sample.id in names]
    wrong, missing, equal, compared = [], [], 0, 0
    try:
        with use_kernels(how_of(manifest).kernels), out_of_memory("making answers again"):
            repeated = answers(run, samples, "answers made again")
            contested: dict[str, list[dict[str, Any]]] = {}
            for record in drawn:
                again = repeated.get((record["sample"], setting_hash(record)))
                if again is None:
                    missing.append(f"{named(record)}: it could not be made again")
                    continue
                compared += 1
                missing += [f"{named(record)}: {line}" for line in unlike(record, again, folder.packed)]
                if differing(record, again):
                    contested.setdefault(record["sample"], []).append(record)
                else:
                    equal += 1
            for sample in samples:
                if not (differ := contested.get(sample.id)):
                    continue
                variants = rounded_otherwise(run, sample, [chosen[setting_hash(record)] for record in differ])
                for record in differ:
                    place = (sample.id, setting_hash(record))
                    judged = judge(
                        record, repeated[place], [records[place] for records in variants if place in records]
                    )
                    wrong += [f"{named(record)}: {line}" for line in judged.wrong]
                    missing += [f"{named(record)}: {line}, which rounding can change" for line in judged.open]
    except UserError as error:
        raise NotHere(str(error)) from error
    verdict = Verdict.WRONG if wrong else Verdict.UNPROVEN if missing or not compared else Verdict.PROVEN
    summary = f"{', '.join(names)}: {equal} of {count(compared, 'answer')} the same in tokens, bytes and scores"
    return Check(NAME, verdict, about, (summary, *shortened(wrong or missing)), compared)
