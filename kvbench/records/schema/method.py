"""Records of kind `method`: the answer and the cache of one setting for one sample."""

from typing import Literal

from kvbench.records.schema.caches import Decoding, Ratios
from kvbench.records.schema.fields import Count, Number, Plain, Text, field
from kvbench.records.schema.record import OfSetting


class MethodRecord(Decoding, Ratios, OfSetting):
    """One sample under one setting: prediction, scores, reserve ratio, bytes and times."""

    full_cache_tokens: Count = field(
        "generated tokens that were chosen with the uncompressed cache: 1 where the first comes from the prefill",
        "tokens",
    )
    context_id: Text = field("samples with the same value are about one context", optional=True)
    unit: Text = field(
        "samples with the same value were not drawn independently (they share a text): intervals draw them together; "
        "without it, `context_id` or the sample",
        optional=True,
    )
    question_tokens: Count = field(
        "read between compression and the answer: a hidden question, earlier answers and later turns, the last token "
        "with first_token=compressed; else 0",
        "tokens",
    )
    answers: list[Text] = field("the expected answers")
    prediction: Text = field("the generated text")
    distance: dict[Text, Number] | None = field(
        "distance from FullKV along FullKV's own greedy answer: `kl` and `answer_loglik` (first expected answer, "
        "minus FullKV's) in nats, `top1` and `agreed` as shares; of a scored text also `nll` (nats per token) and "
        "`bits_per_byte`; null where it was not measured",
        "see there",
        since="0.2",
    )
    r_bytes_16: Number = field(
        "r_bytes as if the model's numbers had 16 bits, as they are served: keys, values and what formats keep of them "
        "in the model's dtype count two bytes a number, codes, positions and float32 scales as they are",
        "1",
        since="0.2",
    )
    full_layers: list[Count] = field(
        "numbers of the compressed layers, which the lists by layer refer to; missing where these are all layers",
        optional=True,
    )
    nominal_per_layer: list[Number] = field("tokens per head that the allocation gives to each layer", "tokens")
    kept_per_layer: list[Number] = field(
        "tokens per head of `ratio_over` that each layer kept, mean over heads", "tokens"
    )
    kept_per_head: list[list[Count] | None] | None = field(
        "tokens of each head of `ratio_over`, by layer; null where all heads keep the same number",
        "tokens",
        optional=True,
        always=True,
    )
    kept_positions: list[Text | None] | None = field(
        "positions of the kept tokens of each layer, encoded; null where entries are pooled from several tokens",
        optional=True,
    )
    spans_kept: dict[Text, Number] | None = field(
        "share of the tokens of each marked span (system message, instruction, …) that the compressed layers kept, "
        "mean over layers and heads; null where entries are pooled from several tokens; missing without spans",
        "1",
        optional=True,
    )
    peak_cache_bytes: Count = field("keys, values and states of all layers at the largest moment, counted", "bytes")
    peak_device_bytes: Count | None = field("the GPU allocator's peak, model included; null on a CPU", "bytes")
    prefill_seconds: Number = field("prefill with the observations that the pass's settings need", "s")
    compress_seconds: Number = field("compression of the prompt", "s")
    second_pass_seconds: Number = field(
        "of compress_seconds, reading the context again: one pass for all records with the same number; missing if it "
        "was read once",
        "s",
        optional=True,
    )
    close_call: Count | None = field(
        "first generated token whose choice rounding could change; null if none",
        "token index",
        optional=True,
        always=True,
    )
    close_cuts: Count | None = field(
        "layers' heads in which rounding could keep another token at the head's budget; null where the method ranks no "
        "scores one by one",
        "heads",
        optional=True,
        always=True,
    )
    sampling: dict[Text, Plain] | None = field(
        "seed, temperature, top_p and top_k of a sampled answer; missing if decoding was greedy",
        optional=True,
    )
    triggers: Count = field(
        "passes after which the cache was reduced, in the layer with the most; missing if none is cut at intervals",
        "passes",
        optional=True,
    )
    question_seconds: Number = field("reading the hidden question, whole batch", "s", optional=True, always=True)
    decode_batch: Count = field("sequences that decoded together", "sequences", optional=True, always=True)
    decode_engine: Literal["graph", "fused", "eager"] = field(
        "graph: most steps of decoding were repeated as one; fused: so were steps of compiled layers; eager: Python "
        "launched each",
        optional=True,
        always=True,
    )
