"""Forgeries of fields alone: those that a check finds, and those that leave a check without something to compare."""

import json

from tests.support.forged import request
from tests.support.forgeries import (
    FORGERIES,
    HIGH,
    SETTING,
    Change,
    Forgery,
    another_first_token,
    every,
    first,
    half,
    manifest,
    narrower,
    of,
    retold,
    share,
    together,
    with_parameters_of_high,
)

__all__ = ["FORGERIES", "LEFT_OUT"]

# With scores that nobody computed: no record of an engine was scored again.
AN_ENGINE = every(
    **{"kind": "engine", "scores": {"digits": 1.0, "exact": 1.0}, "distance": None, "top": None, "ratio": None},
    **{"reported_bytes": None, "stated_bytes": 1, "repeated": None, "request_seconds": 1.0, "concurrency": 1},
)

# Changes by name, by the check that finds them.
FOUND: dict[str, dict[str, Change]] = {
    "scores": {
        "better_scores": first(scores={"digits": 1.0, "exact": 1.0}),
        "slightly_better_scores": first(scores=lambda r: r["scores"] | {"digits": r["scores"]["digits"] + 0.01}),
        "worse_scores_of_a_rival": every("h2o 0.5", scores={"digits": -0.1, "exact": 0.0}),
        "a_score_left_out": first(scores=lambda r: {"digits": r["scores"]["digits"]}),
        "a_score_invented": first(scores=lambda r: r["scores"] | {"robust": 1.0}),
        "another_benchmarks_name": every(None, benchmark="ruler"),
        "invented_scores_of_an_engine": AN_ENGINE,
    },
    "answers": {
        "edited_tokens": first(tokens=another_first_token),
        "more_tokens_than_passes": first(tokens=lambda r: [*r["tokens"], 7, 8, 9]),
        "close_cuts_of_a_whole_cache": lambda f: f.of("full")[0].update(close_cuts=3),
        "a_close_call_behind_the_answer": first(close_call=99),
        "an_answer_that_begins_otherwise_than_fullkvs": retold,
        "another_length_of_the_same_prompt": every(prompt_tokens=lambda r: r["prompt_tokens"] + 1),
        "tokens_beyond_any_vocabulary": first(tokens=lambda r: [2**40, *r["tokens"][1:]]),
        "tokens_below_zero": first(tokens=lambda r: [-5, *r["tokens"][1:]]),
    },
    "samples": {
        "an_answer_longer_than_allowed": first(tokens=lambda r: r["tokens"] + [7] * 40),
        "easier_answers": every(answers=lambda r: [r["prediction"][:3] or "a"]),
        "another_depth": first(depth=99),
        "invented_samples": every(sample=lambda r: f"{r['sample']}-easy"),
        "an_edited_hash_of_the_data": manifest(data_sha256="00" * 32),
        "the_last_samples_as_the_first_ones": manifest(config__limit=1),
        "a_drawn_answer_that_was_not_drawn": first(
            sampling={"seed": 1, "temperature": 1.0, "top_p": 1.0, "top_k": None}
        ),
    },
    "copies": {"one_prefill_for_two_samples": every(None, prefill_seconds=0.5)},
    "keys": {"an_edited_parameter": every(parameters=narrower)},
    "bytes": {
        "fewer_bytes": every(stored_bytes=half("stored_bytes")),
        "fewer_bytes_with_their_ratio": every(stored_bytes=half("stored_bytes"), r_bytes=share),
        "an_impossible_r_beside_r_bytes": every(r=0.05, r_corrected=0.05),
        "a_codebook_that_there_is_not": every(r=0.05, r_corrected=0.05, r2=0.25),
        "smaller_entries_of_no_codebook": every(r=0.05, r_corrected=0.05, r3=0.25),
        "a_codebook_that_changes_nothing": every(r2=0.5),
        "edited_kept_counts": every(kept_per_layer=lambda r: [10.0] * len(r["kept_per_layer"])),
        "more_tokens_than_the_prompt_has": first(kept_per_layer=lambda r: [1e6, *r["kept_per_layer"][1:]]),
        "a_larger_fullkv": every(full_bytes=lambda r: 2 * r["full_bytes"], r_bytes=share),
        "a_smaller_fullkv_itself": every("full", stored_bytes=half("stored_bytes"), r_bytes=0.5),
        "a_floor_that_was_not_hit": every(floored=True),
        "a_peak_below_what_is_stored": first(peak_cache_bytes=half("stored_bytes")),
        "windows_without_their_ratios": every(window_bytes=1),
    },
    "decoding": {
        "fewer_bytes_while_decoding": first(r_end=half("r_end")),
        "a_smaller_mean_over_passes": first(decode_byte_steps=half("decode_byte_steps")),
        "a_smaller_peak": first(r_peak=half("r_decode_peak")),
    },
    "times": {
        "negative_times": first(compress_seconds=-1.0),
        "a_second_pass_longer_than_its_compression": first(compress_seconds=1e-6, second_pass_seconds=2e-6),
        "a_prefill_that_took_no_time": first(prefill_seconds=0.0),
        "passes_that_took_no_time": first(decode_seconds=0.0),
        "more_seconds_than_the_run": lambda f: f.of("h2o 0.5")[0].update(decode_seconds=1e6),
    },
    "model": {
        "other_weights_under_the_name": lambda f: f.manifest["model"]["files"].update({"model.safetensors": "ab" * 32}),
        "a_larger_models_name_throughout": together(
            every(None, model="llama3-8b"),
            manifest(config__model__name="llama3-8b", config__model__path=None),
            manifest(model={"source": "somebody/llama", "revision": "ab" * 20}),
        ),
    },
    "prompts": {
        "tokens_of_a_question_that_there_is_not": every(question_tokens=7),
        # twice the tokens everywhere, so that every ratio is half of what it was
        "a_longer_prompt_throughout": every(None, prompt_tokens=lambda r: 2 * r["prompt_tokens"]),
        "another_protocol_throughout": together(
            every(None, question="hidden"), manifest(question="hidden", config__question="hidden")
        ),
    },
    "manifests": {
        "a_setting_renamed": every(setting="mykv 0.2"),
        "a_run_that_ended_before_it_started": manifest(ended="2001-01-01T00:00:00.000+00:00"),
        "a_run_of_another_day": manifest(started="2001-01-01T00:00:00.000+00:00"),
        "another_models_name": every(None, model="llama3-8b"),
        "another_protocol": every(None, question="hidden"),
        "another_benchmarks_configuration": manifest(benchmark__lengths=[4096]),
        "an_unknown_dtype": manifest(dtype="torch.float12"),
        "another_time_of_compression": every(compress_at="in_prefill"),
        "no_token_of_fullkvs": every(full_cache_tokens=0),
        "another_first_token": manifest(first_token="compressed"),
        "sixteen_bits_that_were_thirty_two": together(
            manifest(dtype="torch.bfloat16"),
            every(None, **{name: half(name) for name in ("full_bytes", "stored_bytes", "peak_cache_bytes")}),
        ),
    },
    "fields": {"a_field_of_ones_own": first(reviewed=True), "an_engine_in_the_place_of_a_method": AN_ENGINE},
    "names": {
        "a_presets_parameters_under_another_name": with_parameters_of_high("h2o 0.5"),
        "an_eviction_as_full": with_parameters_of_high("full"),
        "a_preset_under_a_name_of_ones_own": every(HIGH, method="mykv", setting="mykv 0.5"),
        "a_name_that_only_looks_alike": every(setting=of("setting", lambda name: name.replace("a", "\u0430"))),
        "a_name_that_changes_the_direction_of_the_line": every(setting=f"\u202e{SETTING}"),
        "a_name_of_a_million_letters": every(method="m" * 10**6),
    },
    "files": {
        "a_manifest_of_some_megabytes": manifest(config__ratio=[1 / (2 + number) for number in range(10**5)]),
        "a_trillion_shards": manifest(config__shards=10**12),
    },
}
FORGERIES |= {name: Forgery(change, check) for check, changes in FOUND.items() for name, change in changes.items()}


def requested(f):
    """Another parameter of a setting, in records and among what its run requested."""
    every(parameters=narrower)(f)
    request(f.manifest, f.of(SETTING)[0])


def without_figures_of_decoding(f):
    for record in f.of(SETTING):
        for name in [*record]:
            if name.startswith(("decode_byte", "r_mean", "r_peak", "r_end", "r_read")):
                del record[name]


def benchmark(**entries) -> Change:
    """Other entries of the benchmark, wherever the manifest has it."""
    return together(*(manifest(**{f"{at}__{key}": entries[key] for key in entries}) for at in PLACES))


PLACES = ("benchmark", "config__benchmark")

# Changes by name, by the check that is unproven then.
UNPROVEN: dict[str, dict[str, Change]] = {
    "times": {"an_unknown_device": manifest(device="abacus")},
    "scores": {
        "an_unknown_metric": every(None, metric="my.metric"),
        "a_metric_that_is_no_text": every(None, metric={}),
        "an_invented_distance": every(distance={"kl": 0.0, "top1": 1.0, "agreed": 1.0}),
    },
    "fields": {"no_figures_of_decoding": without_figures_of_decoding},
    "answers": {"a_close_call_at_the_first_token": together(retold, first(close_call=0))},
    "names": {"a_presets_name_with_other_parameters": requested},
    "bytes": {
        "a_storage_that_is_a_text": every(
            parameters=of("parameters", lambda text: json.dumps({**json.loads(text), "storage": "x"}))
        )
    },
    "completeness": {"all_other_shards_left_out": manifest(config__shards=4096)},
    "samples": {
        "a_billion_lengths": benchmark(lengths="1 to 1000000000 by 1"),
        "a_billion_seeds": benchmark(seeds=10**9),
        "a_prompt_of_a_billion_tokens": benchmark(lengths=[10**9]),
    },
    "manifests": {"ten_thousand_ratios": manifest(config__ratio=[1 / (2 + number) for number in range(10**4)])},
}
LEFT_OUT = {name: (change, check) for check, changes in UNPROVEN.items() for name, change in changes.items()}
