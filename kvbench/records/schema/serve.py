"""Records of kind `serve`: a server under one load, as GuideLLM measured it."""

from kvbench.records.schema.fields import Count, Number, Plain, Text, field
from kvbench.records.schema.record import Record


class ServeRecord(Record):
    """One load of one configuration of an engine: means over repeats. `prompt_tokens` is the mean of the prompts, as
    the server counts them, or else as kvbench does."""

    method: Text = field("the setting's label again: an engine has no method of kvbench")
    ratio: None = field("null")
    budget: None = field("null")
    scores: dict[Text, Number] = field("empty: the answers to these prompts are not scored")
    tool: Text = field("what measured, and its version")
    requested: dict[Text, Plain] = field("requests, warm-up and answers of a load, as configured")
    limits: dict[Text, Number] = field("limits of a good answer's latency; empty without any", "ms")
    answered: Count = field("requests that were answered and counted, over all repeats", "requests")
    failed: Count = field("requests that the server refused or broke off", "requests")
    unfinished: Count = field("requests that were open when the load ended", "requests")
    first_error: Text = field("why the first of them failed; empty where none did")
    figures: dict[Text, Number] = field(
        "mean over repeats of each figure: `first_token_ms`, `per_token_ms`, `inter_token_ms` and `request_s` with "
        "`_mean`, `_p50`, `_p95`, `_p99`; `tokens_per_s`, `request_tokens_per_s`, `requests_per_s`; with limits "
        "`good_requests_per_s` and `good_share`; mean `concurrency`, `prompt_tokens`, `output_tokens`",
        "ms, s, 1/s",
    )
    intervals: dict[Text, list[Number]] = field("95 % interval of these means over repeats, where repeats differ")
    repeats: dict[Text, list[Number]] = field("every repeat by figure")
    capacity: dict[Text, Number] = field(
        "the most that the server's /metrics said during the load: `running` and `waiting` requests, share "
        "`cache_used` of the fullest engine, and the `cache_tokens` that all engines have room for; empty where it "
        "says nothing"
    )
    reports: dict[Text, Text] = field("GuideLLM's reports in the folder's `guidellm/`, and their SHA-256")
    load_average: list[Number] = field("of the machine that measured, before each repeat", "processes")
