"""The contract of a probe."""

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from pydantic import Field
from torch import Tensor

from kvbench.prefill import LayerState, Needs
from kvbench.utils.checked import NonNegative
from kvbench.utils.targets import build
from kvbench.utils.versions import Versioned, raised, versions

# As `Needs.window`: the queries of every position.
ALL = 2**31
# Layers to observe, counted from 0; None for all.
Layers = Annotated[list[NonNegative], Field(min_length=1)] | None


class Probe(Versioned, ABC):
    """One quantity measured in every layer, from that layer's prefill state alone.

    `needs` is read before the prefill, so that one pass serves all probes of a run. An `answered` probe observes a
    pass over the prompt and FullKV's greedy answer: under causal masking, the rows after the prompt are the attention
    during decoding. `axes` names the axes of a layer's values, which determine the kind of plot: heads, tokens, or
    map (tokens × tokens).
    """

    guide: ClassVar[str] = "docs/api.md"
    needs: Needs = Needs()
    answered: bool = False
    layers: Layers = None
    axes: str = "heads"

    @property
    @abstractmethod
    def quantity(self) -> str:
        """The quantity of the values, with their unit: the axis label of a plot."""

    @abstractmethod
    def observe(self, layer: LayerState, prompt: int) -> Tensor:
        """The values of one layer whose first `prompt` tokens are the prompt: a float tensor of any shape."""


@dataclass(frozen=True)
class Observation:
    """A probe with its parameters, like a setting in a run of methods."""

    name: str
    probe: Probe
    parameters: str  # the probe's configuration as canonical JSON

    @property
    def label(self) -> str:
        return self.name

    @property
    def key(self) -> str:
        """The parameters of the values besides sample and model, and the name, by which plots select them."""
        return json.dumps(["probe", self.name, self.parameters])


def build_probes(configs: Mapping[str, Mapping[str, Any]]) -> list[Observation]:
    """The configured probes in order; UserError names a bad value."""
    observations = []
    for name, config in configs.items():
        config = {key: value for key, value in config.items() if key != "about"}
        probe = build(config, f"probe {name!r}", Probe)
        observations.append(Observation(name, probe, json.dumps(config | raised(versions(probe)), sort_keys=True)))
    return observations
