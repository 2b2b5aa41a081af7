"""Forgeries of a run's records and manifest, by name: what is changed, and the check that must find it."""

import copy
from collections.abc import Callable
from functools import reduce
from typing import Any, NamedTuple

from tests.support.forged import Forged, request

SETTING = "snapkv 0.2"
HIGH = "snapkv 0.5"

Change = Callable[[Forged], None]


class Forgery(NamedTuple):
    change: Change
    check: str
    keys: bool = True  # whether the forger makes keys again


def change(records: list[dict], fields: dict[str, Any]) -> None:
    """Give records other fields, one after the other; a function makes a field of the record."""
    for record in records:
        for name, value in fields.items():
            record[name] = value(record) if callable(value) else copy.deepcopy(value)


def first(**fields: Any) -> Change:
    """Other fields of one record."""
    return lambda f: change(f.of(SETTING)[:1], fields)


def every(setting: str | None = SETTING, /, **fields: Any) -> Change:
    """Other fields of all records of a setting; None: of all settings."""
    return lambda f: change(f.records if setting is None else f.of(setting), fields)


def manifest(**entries: Any) -> Change:
    """Other entries of the manifest; `config__limit` is that of `config`."""

    def changed(f: Forged) -> None:
        for place, value in entries.items():
            *nodes, name = place.split("__")
            reduce(dict.__getitem__, nodes, f.manifest)[name] = value

    return changed


def together(*changes: Change) -> Change:
    def changed(f: Forged) -> None:
        for one in changes:
            one(f)

    return changed


def of(name: str, make: Callable[[Any], Any]) -> Callable[[dict], Any]:
    """A field made of another one of its record."""
    return lambda record: make(record[name])


def half(name: str) -> Callable[[dict], Any]:
    return of(name, lambda number: number / 2 if isinstance(number, float) else number // 2)


def another_first_token(record: dict) -> list[int]:
    return [record["tokens"][0] + 1, *record["tokens"][1:]]


def share(record: dict) -> float:
    return record["stored_bytes"] / record["full_bytes"]


def narrower(record: dict) -> str:
    """The parameters with another kernel of pooling."""
    return record["parameters"].replace('"kernel": 7', '"kernel": 5')


FORGERIES: dict[str, Forgery] = {}


def forgery(check: str, keys: bool = True):
    """Name the check that must find a forgery of more than fields."""

    def add(function: Change) -> Change:
        FORGERIES[function.__name__] = Forgery(function, check, keys)
        return function

    return add


# --- answers


@forgery("answers")
def a_right_prediction_without_its_tokens(f):
    record = f.of(SETTING)[0]
    record["prediction"], record["scores"] = record["answers"][0], {"digits": 1.0, "exact": 1.0}


def retold(f: Forged) -> None:
    """Another first token, and the text of the tokens: as from another sample, or from another model."""
    record = f.of(SETTING)[0]
    record["tokens"] = another_first_token(record)
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


# --- samples


@forgery("samples")
def easier_answers_in_the_samples_too(f):
    for each in (*f.records, *f.samples.values()):
        each["answers"] = ["a"]


def without_a_sample(f: Forged) -> str:
    """One sample is left out of the records, and every count follows: its name."""
    name = f.records[0]["sample"]
    f.records = [record for record in f.records if record["sample"] != name]
    f.manifest |= {"wanted": len(f.records), "records": len(f.records)}
    return name


@forgery("samples")
def cherry_picked_samples(f):
    del f.samples[without_a_sample(f)]


@forgery("completeness")
def cherry_picked_samples_still_listed(f):
    without_a_sample(f)


@forgery("samples")
def an_edited_row_of_samples(f):
    next(iter(f.samples.values()))["question"] = "What is 1 + 1?"


@forgery("samples")
def another_unit(f):
    for number, record in enumerate(f.records):
        record["unit"] = f"text {number}"


# --- missing and added records


@forgery("completeness")
def dropped_failures(f):
    f.records.remove(min(f.of(SETTING), key=lambda record: record["scores"]["digits"]))


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


@forgery("keys", keys=False)
def another_settings_records(f):
    """The answers at twice the budget under the name of the small one."""
    for record in f.of(HIGH):
        record |= {"ratio": 0.2, "setting": SETTING}
    f.records = [record for record in f.records if record["setting"] != SETTING or record["ratio"] == 0.2]


@forgery("manifests")
def an_edited_parameter_that_was_requested(f):
    edited = [record | {"parameters": narrower(record)} for record in f.of(SETTING)]
    f.records = [*(record for record in f.records if record["setting"] != SETTING), *edited]
    place = f.manifest["settings"].index(SETTING)
    request(f.manifest, edited[0])
    f.manifest["settings"].pop(place), f.manifest["requested"].pop(place)


@forgery("names")
def two_names_for_one_setting(f):
    f.records += [copy.deepcopy(record) | {"method": "mykv", "setting": "mykv 0.2"} for record in f.of(SETTING)]


# --- bytes and names of other settings


@forgery("bytes")
def fewer_kept_tokens_throughout(f):
    """Kept tokens, r and bytes follow from each other, but not from the budget."""
    for record in f.of(SETTING):
        n, layers = record["prompt_tokens"], len(record["kept_per_layer"])
        record |= {"kept_per_layer": [10.0] * layers, "r1": 10 / n, "r": 10 / n, "r_corrected": 10 / n}
        record |= {"stored_bytes": record["full_bytes"] * 10 // n, "kept_positions": [None] * layers}
        record["r_bytes"] = share(record)


@forgery("bytes")
def a_histogram_of_another_setting(f):
    for record, other in zip(f.of(SETTING), f.of("full"), strict=True):
        record["kept_positions"] = other["kept_positions"]


def with_parameters_of_high(setting: str) -> Change:
    return lambda f: change(f.of(setting), {"parameters": f.of(HIGH)[0]["parameters"]})


@forgery("manifests")
def labels_exchanged_between_ratios(f):
    low, high = f.of(SETTING), f.of(HIGH)
    change(low, {"setting": HIGH})
    change(high, {"setting": SETTING})


# --- runs


def another_run(f: Forged, name: str, **entries: Any) -> None:
    f.extra.append(copy.deepcopy(f.manifest) | {"run": name} | entries)


@forgery("code")
def mixed_versions_of_the_code(f):
    name = f.manifest["run"][:-4] + "beef"
    change(f.of(SETTING), {"run": name})
    another_run(f, name, git="cd" * 20)


@forgery("files")
def records_without_a_run(f):
    f.of(SETTING)[0]["run"] = "nowhere"
    another_run(f, "nowhere")
