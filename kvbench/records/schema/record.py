"""What records of several kinds have in common."""

from typing import Literal

from pydantic import ConfigDict

from kvbench.records.schema.fields import Count, Integer, JsonObject, Number, Plain, Strict, Text, field


class Record(Strict):
    """The fields that records of every kind have."""

    model_config = ConfigDict(strict=True, extra="allow")
    __pydantic_extra__: dict[str, Plain]

    key: Text = field("hash of the folder's identity, the sample and the setting; unique in a folder")
    kind: Text = field("what was measured: method, probe, speed, engine or serve", since="0.2")
    run: Text = field("the run that made the record; `manifests/` has its manifest")
    benchmark: Text = field("name of the benchmark")
    model: Text = field("name of the model")
    sample: Text = field("id of the sample; `samples.jsonl` has its question")
    setting: Text = field("label of the setting (method with ratio or budget) or probe, unique in a run")
    parameters: JsonObject = field(
        "the method's or probe's configuration as canonical JSON, with `versions` above 1 of the method and its parts"
    )
    question: Literal["visible", "hidden"] = field("whether the question was compressed with the context")
    prompt_tokens: Count = field("length of the compressed prompt; with a hidden question, of its context", "tokens")
    checksum: Text = field("checksum of the rest of the line, as written; readers verify and drop it", since="0.2")


class OfSetting(Record):
    """What records of kind `method` and `speed` share."""

    method: Text = field("the method's name in tables")
    ratio: Number | None = field("requested share of the prompt's tokens; null where a budget is requested", "1")
    budget: Count | None = field("requested tokens per layer and head; null where a ratio is requested", "tokens")
    compress_at: Text = field(
        "when the prompt is compressed: in_prefill, prefill_end, first_decode, every_step or while_decoding"
    )
    scores: dict[Text, Number] = field(
        "score by metric; the first is the benchmark's main one", "as the metric defines it"
    )
    tokens: list[Integer] | None = field("ids of the generated tokens, without the one that ended them")
    decode_steps: Count | None = field("forward passes after prefill", "passes")
    decode_seconds: Number | None = field("time of these passes; in a batch until this sequence ended", "s")
