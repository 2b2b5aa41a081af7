"""Forgeries of fields that other checks depend on, of kinds and of names; and of values that no version writes."""

import copy
import json
from collections.abc import Callable

from tests.support.forged import Forged, request
from tests.support.forgeries import HIGH, SETTING, forgery

LEFT_OUT: dict[str, tuple[Callable[[Forged], None], str]] = {}


def left_out(check: str):
    """Name the check that a forgery leaves without something to compare: it is unproven then."""

    def add(function):
        LEFT_OUT[function.__name__] = (function, check)
        return function

    return add


# --- fields that checks depend on


@forgery("manifests")
def an_unknown_dtype(f):
    f.manifest["dtype"] = "torch.float12"


@left_out("times")
def an_unknown_device(f):
    f.manifest["device"] = "abacus"


@left_out("scores")
def an_unknown_metric(f):
    for record in f.records:
        record["metric"] = "my.metric"


@left_out("scores")
def a_metric_that_is_no_text(f):
    for record in f.records:
        record["metric"] = {}


@left_out("fields")
def no_figures_of_decoding(f):
    for record in f.of(SETTING):
        for name in [
            name for name in record if name.startswith(("decode_byte", "r_mean", "r_peak", "r_end", "r_read"))
        ]:
            del record[name]


@forgery("samples")
def a_drawn_answer_that_was_not_drawn(f):
    f.of(SETTING)[0]["sampling"] = {"seed": 1, "temperature": 1.0, "top_p": 1.0, "top_k": None}


@forgery("prompts")
def tokens_of_a_question_that_there_is_not(f):
    for record in f.of(SETTING):
        record["question_tokens"] = 7


@forgery("manifests")
def another_time_of_compression(f):
    for record in f.of(SETTING):
        record["compress_at"] = "in_prefill"


@forgery("manifests")
def no_token_of_fullkvs(f):
    for record in f.of(SETTING):
        record["full_cache_tokens"] = 0


@left_out("answers")
def a_close_call_at_the_first_token(f):
    record = f.of(SETTING)[0]
    record["tokens"] = [record["tokens"][0] + 1, *record["tokens"][1:]]
    record["prediction"] = f.tokenizer.decode(record["tokens"], skip_special_tokens=True)
    record["close_call"] = 0


@forgery("bytes")
def windows_without_their_ratios(f):
    for record in f.of(SETTING):
        record["window_bytes"] = 1


@forgery("fields")
def a_field_of_ones_own(f):
    f.of(SETTING)[0]["reviewed"] = True


# --- kinds


@forgery("fields")
def an_engine_in_the_place_of_a_method(f):
    """With scores that nobody computed: no record of an engine was scored again."""
    for record in f.of(SETTING):
        record |= {"kind": "engine", "scores": {"digits": 1.0, "exact": 1.0}, "distance": None, "top": None}
        record |= {
            "reported_bytes": None,
            "stated_bytes": 1,
            "repeated": None,
            "request_seconds": 1.0,
            "concurrency": 1,
        }
        record |= {"ratio": None}


@forgery("scores")
def invented_scores_of_an_engine(f):
    an_engine_in_the_place_of_a_method(f)


# --- names


@left_out("names")
def a_presets_name_with_other_parameters(f):
    _renamed(f, SETTING, lambda record: record["parameters"].replace('"kernel": 7', '"kernel": 5'))


@forgery("names")
def a_presets_parameters_under_another_name(f):
    for record in f.of("h2o 0.5"):
        record["parameters"] = f.of(HIGH)[0]["parameters"]


@forgery("names")
def an_eviction_as_full(f):
    for record in f.of("full"):
        record["parameters"] = f.of(HIGH)[0]["parameters"]


@forgery("names")
def a_preset_under_a_name_of_ones_own(f):
    for record in f.of(HIGH):
        record |= {"method": "mykv", "setting": "mykv 0.5"}


@forgery("manifests")
def labels_exchanged_between_ratios(f):
    low, high = f.of(SETTING), f.of(HIGH)
    for record in low:
        record["setting"] = HIGH
    for record in high:
        record["setting"] = SETTING


@forgery("names")
def a_name_that_only_looks_alike(f):
    for record in f.of(SETTING):
        record["setting"] = record["setting"].replace("a", "\u0430")


@forgery("names")
def a_name_that_changes_the_direction_of_the_line(f):
    for record in f.of(SETTING):
        record["setting"] = "\u202e" + record["setting"]


@forgery("names")
def two_names_for_one_setting(f):
    for record in f.of(SETTING):
        again = copy.deepcopy(record) | {"method": "mykv", "setting": "mykv 0.2"}
        f.records.append(again)


@forgery("names")
def a_name_of_a_million_letters(f):
    for record in f.of(SETTING):
        record["method"] = "m" * 10**6


def _renamed(f: Forged, setting: str, parameters: Callable[[dict], str]) -> None:
    """Other parameters of a setting, in records and among what its run requested."""
    for record in f.of(setting):
        record["parameters"] = parameters(record)
    request(f.manifest, f.of(setting)[0])


# --- prompts


@forgery("prompts")
def a_longer_prompt_throughout(f):
    """Twice the tokens everywhere, so that every ratio is half of what it was."""
    for record in f.records:
        record["prompt_tokens"] *= 2


@forgery("samples")
def another_unit(f):
    for number, record in enumerate(f.records):
        record["unit"] = f"text {number}"


@forgery("prompts")
def another_protocol_throughout(f):
    for record in f.records:
        record["question"] = "hidden"
    f.manifest["question"] = f.manifest["config"]["question"] = "hidden"


@forgery("manifests")
def another_first_token(f):
    f.manifest["first_token"] = "compressed"


@forgery("manifests")
def sixteen_bits_that_were_thirty_two(f):
    f.manifest["dtype"] = "torch.bfloat16"
    for record in f.records:
        for name in ("full_bytes", "stored_bytes", "peak_cache_bytes"):
            record[name] //= 2


# --- distances


@left_out("scores")
def an_invented_distance(f):
    for record in f.of(SETTING):
        record["distance"] = {"kl": 0.0, "top1": 1.0, "agreed": 1.0}


# --- values that ended verify with an error


@forgery("answers")
def tokens_beyond_any_vocabulary(f):
    f.of(SETTING)[0]["tokens"][0] = 2**40


@forgery("answers")
def tokens_below_zero(f):
    f.of(SETTING)[0]["tokens"][0] = -5


@left_out("bytes")
def a_storage_that_is_a_text(f):
    for record in f.of(SETTING):
        record["parameters"] = json.dumps({**json.loads(record["parameters"]), "storage": "x"})


@left_out("completeness")
def a_trillion_shards(f):
    f.manifest["config"]["shards"] = 10**12


@left_out("samples")
def a_billion_lengths(f):
    for node in (f.manifest["benchmark"], f.manifest["config"]["benchmark"]):
        node["lengths"] = "1 to 1000000000 by 1"


@left_out("samples")
def a_billion_seeds(f):
    for node in (f.manifest["benchmark"], f.manifest["config"]["benchmark"]):
        node["seeds"] = 10**9


@left_out("samples")
def a_prompt_of_a_billion_tokens(f):
    for node in (f.manifest["benchmark"], f.manifest["config"]["benchmark"]):
        node["lengths"] = [10**9]


@left_out("manifests")
def ten_thousand_ratios(f):
    f.manifest["config"]["ratio"] = [1 / (2 + number) for number in range(10**4)]


@forgery("files")
def a_manifest_of_some_megabytes(f):
    f.manifest["config"]["ratio"] = [1 / (2 + number) for number in range(10**5)]
