"""Forgeries of what records and manifests claim: bytes, times, model, code, protocol."""

import copy

from tests.support.forgeries import FORGERIES, SETTING, forgery

__all__ = ["FORGERIES"]

# --- bytes


@forgery("bytes")
def fewer_bytes(f):
    for record in f.of(SETTING):
        record["stored_bytes"] //= 2


@forgery("bytes")
def fewer_bytes_with_their_ratio(f):
    for record in f.of(SETTING):
        record["stored_bytes"] //= 2
        record["r_bytes"] = record["stored_bytes"] / record["full_bytes"]


@forgery("bytes")
def an_impossible_r_beside_r_bytes(f):
    for record in f.of(SETTING):
        record["r"] = record["r_corrected"] = 0.05


@forgery("bytes")
def edited_kept_counts(f):
    for record in f.of(SETTING):
        record["kept_per_layer"] = [10.0] * len(record["kept_per_layer"])


@forgery("bytes")
def fewer_kept_tokens_throughout(f):
    """Kept tokens, r and bytes follow from each other, but not from the budget."""
    for record in f.of(SETTING):
        n, layers = record["prompt_tokens"], len(record["kept_per_layer"])
        record |= {"kept_per_layer": [10.0] * layers, "r1": 10 / n, "r": 10 / n, "r_corrected": 10 / n}
        record["stored_bytes"] = record["full_bytes"] * 10 // n
        record |= {"r_bytes": record["stored_bytes"] / record["full_bytes"], "kept_positions": [None] * layers}


@forgery("bytes")
def more_tokens_than_the_prompt_has(f):
    f.of(SETTING)[0]["kept_per_layer"][0] = 1e6


@forgery("bytes")
def a_histogram_of_another_setting(f):
    for record, other in zip(f.of(SETTING), f.of("full"), strict=True):
        record["kept_positions"] = other["kept_positions"]


@forgery("bytes")
def a_larger_fullkv(f):
    for record in f.of(SETTING):
        record["full_bytes"] *= 2
        record["r_bytes"] = record["stored_bytes"] / record["full_bytes"]


@forgery("bytes")
def a_smaller_fullkv_itself(f):
    for record in f.of("full"):
        record["stored_bytes"] //= 2
        record["r_bytes"] = 0.5


@forgery("bytes")
def a_floor_that_was_not_hit(f):
    for record in f.of(SETTING):
        record["floored"] = True


@forgery("decoding")
def fewer_bytes_while_decoding(f):
    f.of(SETTING)[0]["r_end"] /= 2


@forgery("decoding")
def a_smaller_mean_over_passes(f):
    record = f.of(SETTING)[0]
    record["decode_byte_steps"] //= 2


@forgery("decoding")
def a_smaller_peak(f):
    record = f.of(SETTING)[0]
    record["r_peak"] = record["r_decode_peak"] / 2


@forgery("bytes")
def a_peak_below_what_is_stored(f):
    record = f.of(SETTING)[0]
    record["peak_cache_bytes"] = record["stored_bytes"] // 2


# --- times


@forgery("times")
def negative_times(f):
    f.of(SETTING)[0]["compress_seconds"] = -1.0


@forgery("times")
def a_prefill_that_took_no_time(f):
    f.of(SETTING)[0]["prefill_seconds"] = 0.0


@forgery("times")
def passes_that_took_no_time(f):
    f.of(SETTING)[0]["decode_seconds"] = 0.0


@forgery("times")
def more_seconds_than_the_run(f):
    f.of("h2o 0.5")[0]["decode_seconds"] = 1e6


@forgery("manifests")
def a_run_that_ended_before_it_started(f):
    f.manifest["ended"] = "2001-01-01T00:00:00.000+00:00"


@forgery("manifests")
def a_run_of_another_day(f):
    f.manifest["started"] = "2001-01-01T00:00:00.000+00:00"


# --- model, code, protocol


@forgery("model")
def other_weights_under_the_name(f):
    f.manifest["model"]["files"]["model.safetensors"] = "ab" * 32


@forgery("manifests")
def another_models_name(f):
    for record in f.records:
        record["model"] = "llama3-8b"


@forgery("model")
def a_larger_models_name_throughout(f):
    for record in f.records:
        record["model"] = "llama3-8b"
    f.manifest["config"]["model"] |= {"name": "llama3-8b", "path": None}
    f.manifest["model"] = {"source": "somebody/llama", "revision": "ab" * 20}


@forgery("manifests")
def another_protocol(f):
    for record in f.records:
        record["question"] = "hidden"


@forgery("manifests")
def another_benchmarks_configuration(f):
    f.manifest["benchmark"]["lengths"] = [4096]


@forgery("scores")
def another_benchmarks_name(f):
    for record in f.records:
        record["benchmark"] = "ruler"


@forgery("code")
def mixed_versions_of_the_code(f):
    other = copy.deepcopy(f.manifest) | {"git": "cd" * 20, "run": f.manifest["run"][:-4] + "beef"}
    for record in f.of(SETTING):
        record["run"] = other["run"]
    f.extra.append(other)


@forgery("files")
def records_without_a_run(f):
    f.of(SETTING)[0]["run"] = "nowhere"
    f.extra.append(copy.deepcopy(f.manifest) | {"run": "nowhere"})
