"""Forgeries of records: scores, predictions, samples, records that are missing, added or copied."""

import copy
from collections.abc import Callable

from tests.support.forged import Forged, request

SETTING = "snapkv 0.2"
HIGH = "snapkv 0.5"

FORGERIES: dict[str, tuple[Callable[[Forged], None], str, bool]] = {}


def forgery(check: str, keys: bool = True):
    """Name the check that must find a forgery; `keys`: whether the forger makes keys again."""

    def add(function):
        FORGERIES[function.__name__] = (function, check, keys)
        return function

    return add


# --- scores and predictions


@forgery("scores")
def better_scores(f):
    f.of(SETTING)[0]["scores"] = {"digits": 1.0, "exact": 1.0}


@forgery("scores")
def slightly_better_scores(f):
    f.of(SETTING)[0]["scores"]["digits"] += 0.01


@forgery("scores")
def worse_scores_of_a_rival(f):
    for record in f.of("h2o 0.5"):
        record["scores"] = {"digits": -0.1, "exact": 0.0}


@forgery("scores")
def a_score_left_out(f):
    del f.of(SETTING)[0]["scores"]["exact"]


@forgery("scores")
def a_score_invented(f):
    f.of(SETTING)[0]["scores"]["robust"] = 1.0


@forgery("answers")
def a_right_prediction_without_its_tokens(f):
    record = f.of(SETTING)[0]
    record["prediction"], record["scores"] = record["answers"][0], {"digits": 1.0, "exact": 1.0}


@forgery("answers")
def edited_tokens(f):
    f.of(SETTING)[0]["tokens"][0] += 1


@forgery("answers")
def more_tokens_than_passes(f):
    f.of(SETTING)[0]["tokens"] += [7, 8, 9]


@forgery("samples")
def an_answer_longer_than_allowed(f):
    f.of(SETTING)[0]["tokens"] += [7] * 40


@forgery("answers")
def close_cuts_of_a_whole_cache(f):
    f.of("full")[0]["close_cuts"] = 3


@forgery("answers")
def a_close_call_behind_the_answer(f):
    f.of(SETTING)[0]["close_call"] = 99


@forgery("answers")
def an_answer_that_begins_otherwise_than_fullkvs(f):
    """With its text, its passes and the scores of that text: as from another sample, or from another model."""
    record = f.of(SETTING)[0]
    record["tokens"] = [record["tokens"][0] + 1, *record["tokens"][1:]]
    record["prediction"] = f.tokenizer.decode(record["tokens"], skip_special_tokens=True)


@forgery("answers")
def another_answer_although_nothing_was_dropped(f):
    """A method that keeps everything answers as FullKV does."""
    for record, full in zip(f.of(SETTING), f.of("full"), strict=True):
        figures = ("stored_bytes", "kept_per_layer", "kept_positions", "nominal_per_layer")
        names = [name for name in full if name in figures or (name.startswith(("r", "decode_bytes")) and name != "run")]
        record |= {name: full[name] for name in names if name not in ("ratio", "ratio_over")}
        record["tokens"] = [*full["tokens"][:-1], full["tokens"][-1] + 1]
        record["prediction"] = f.tokenizer.decode(record["tokens"], skip_special_tokens=True)


@forgery("answers")
def another_length_of_the_same_prompt(f):
    for record in f.of(SETTING):
        record["prompt_tokens"] += 1


# --- samples


@forgery("samples")
def easier_answers(f):
    for record in f.of(SETTING):
        record["answers"] = [record["prediction"][:3] or "a"]


@forgery("samples")
def easier_answers_in_the_samples_too(f):
    for record in f.records:
        record["answers"] = ["a"]
    for row in f.samples.values():
        row["answers"] = ["a"]


@forgery("samples")
def another_depth(f):
    f.of(SETTING)[0]["depth"] = 99


@forgery("samples")
def invented_samples(f):
    for record in f.of(SETTING):
        record["sample"] += "-easy"


@forgery("samples")
def an_edited_hash_of_the_data(f):
    f.manifest["data_sha256"] = "00" * 32


@forgery("samples")
def cherry_picked_samples(f):
    """One sample is left out everywhere, and every count follows."""
    left = f.records[0]["sample"]
    f.records = [record for record in f.records if record["sample"] != left]
    del f.samples[left]
    f.manifest |= {"wanted": len(f.records), "records": len(f.records)}


@forgery("completeness")
def cherry_picked_samples_still_listed(f):
    left = f.records[0]["sample"]
    f.records = [record for record in f.records if record["sample"] != left]
    f.manifest |= {"wanted": len(f.records), "records": len(f.records)}


@forgery("samples")
def the_last_samples_as_the_first_ones(f):
    f.manifest["config"]["limit"] = 1


@forgery("samples")
def an_edited_row_of_samples(f):
    next(iter(f.samples.values()))["question"] = "What is 1 + 1?"


# --- missing and added records


@forgery("completeness")
def dropped_failures(f):
    worst = min(f.of(SETTING), key=lambda record: record["scores"]["digits"])
    f.records.remove(worst)


@forgery("completeness")
def dropped_failures_with_the_counts(f):
    f.records.remove(f.of(SETTING)[0])
    f.manifest["records"] -= 1


@forgery("manifests")
def dropped_failures_of_a_run_that_wanted_fewer(f):
    f.records.remove(f.of(SETTING)[0])
    f.manifest["wanted"] -= 1


@forgery("completeness")
def a_rival_left_out(f):
    f.records = [record for record in f.records if record["method"] != "h2o"]
    f.manifest["records"] = len(f.records)


@forgery("files")
def duplicate_records(f):
    f.records.append(copy.deepcopy(f.of(SETTING)[0]))


@forgery("copies")
def a_good_record_copied_to_other_samples(f):
    best, *others = f.of(SETTING)
    for other in others:
        other |= {name: value for name, value in best.items() if name.endswith("_seconds")}


@forgery("copies")
def one_prefill_for_two_samples(f):
    for record in f.records:
        record["prefill_seconds"] = 0.5


@forgery("keys", keys=False)
def another_settings_records(f):
    """The answers at twice the budget under the name of the small one."""
    for record in f.of(HIGH):
        record |= {"ratio": 0.2, "setting": SETTING}
    f.records = [record for record in f.records if record["setting"] != SETTING or record["ratio"] == 0.2]


@forgery("keys")
def an_edited_parameter(f):
    for record in f.of(SETTING):
        record["parameters"] = record["parameters"].replace('"kernel": 7', '"kernel": 5')


@forgery("manifests")
def an_edited_parameter_that_was_requested(f):
    old = f.of(SETTING)[0]
    edited = [
        record | {"parameters": record["parameters"].replace('"kernel": 7', '"kernel": 5')} for record in f.of(SETTING)
    ]
    f.records = [*(record for record in f.records if record["setting"] != SETTING), *edited]
    place = f.manifest["settings"].index(old["setting"])
    request(f.manifest, edited[0])
    f.manifest["settings"].pop(place), f.manifest["requested"].pop(place)


@forgery("manifests")
def a_setting_renamed(f):
    for record in f.of(SETTING):
        record["setting"] = "mykv 0.2"
