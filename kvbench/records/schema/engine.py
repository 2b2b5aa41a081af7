"""Records of kind `engine`: what another engine answered to one sample."""

from kvbench.records.schema.fields import Count, Integer, Number, Plain, Text, field
from kvbench.records.schema.record import Record


class EngineRecord(Record):
    """One sample under one configuration of an engine: answer, scores, and the engine's report of its cache."""

    method: Text = field("the setting's label again: an engine has no method of kvbench")
    ratio: None = field("null: nothing is requested of an engine but its configuration")
    budget: None = field("null")
    floored: bool = field("false")
    target_missed: bool = field("false")
    context_id: Text = field("samples with the same value are about one context", optional=True)
    unit: Text = field("samples with the same value share a text, and intervals draw them together", optional=True)
    answers: list[Text] = field("the expected answers")
    prediction: Text = field("the generated text")
    tokens: list[Integer] | None = field(
        "ids of the generated tokens, without the one that ended them; null where the engine gives text alone"
    )
    scores: dict[Text, Number] = field(
        "score by metric; the first is the benchmark's main one", "as the metric defines it"
    )
    distance: dict[Text, Number] | None = field(
        "distance from the folder's first setting along its answer: `top1` and `agreed` as shares, `kl_at_least` in "
        "nats, a lower bound from the likeliest tokens alone; null where it was not measured",
        "see there",
    )
    equal: bool = field("whether the answer equals the first setting's in the folder, by tokens or text", optional=True)
    baseline: Text = field("from which answer `equal` and `distance` are: its setting and its hash", optional=True)
    served_tokens: Count = field(
        "of the prompt in the chat template of a server that takes messages (engine.mode=chat), as it counts them",
        "tokens",
        optional=True,
    )
    top: list[dict[Text, Number]] | None = field(
        "of the first setting where distances are measured: the likeliest tokens at each place of its answer and their "
        "log-probabilities; else null",
        "nats",
    )
    reported_bytes: Count | None = field(
        "KV cache as the engine reports it, whole buffers; null where it does not", "bytes"
    )
    stated_bytes: Count | None = field(
        "KV cache of the prompt as its type states it: bits of elements and scales; null where that is not known",
        "bytes",
    )
    repeated: dict[Text, Plain] | None = field(
        "the same question asked again: whether both answers are `equal`, and the share of the text before their first "
        "difference (`agreed`); null where it was asked once"
    )
    request_seconds: Number = field("from question to answer, with retries and what else the engine did", "s")
    concurrency: Count = field("questions that the engine was asked at once", "questions")
    sampling: dict[Text, Plain] | None = field("see kind `method`; drawn by the engine's random numbers", optional=True)
