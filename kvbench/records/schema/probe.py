"""Records of kind `probe`: what was observed in place of methods."""

from typing import Any

from kvbench.records.schema.fields import Count, Text, field
from kvbench.records.schema.record import Record


class ProbeRecord(Record):
    """What one probe observed in the layers of a model during one sample's prefill."""

    probe: Text = field("name of the probe")
    quantity: Text = field("the quantity of the values, with their unit")
    axes: Text = field("the axes of a layer's values: heads, tokens or map (tokens × tokens)")
    answer_tokens: Count = field("greedy answer that the probe saw after the prompt; 0 if it saw none", "tokens")
    layers: list[Count] = field("indices of the layers observed")
    values: list[list[Any]] = field("the values, one nested list per layer", "see `quantity`")
