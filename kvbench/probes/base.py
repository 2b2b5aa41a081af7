"""The contract of a probe."""

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from kvbench.config import build
from kvbench.errors import UserError
from kvbench.prefill import LayerState, Needs

# As `Needs.window`: the queries of every position, which take no more memory than a layer's keys unfolded.
ALL = 2**31
# Queries at a time where more than the window's are read: a constant, so memory stays O(n · heads).
TILE = 128


class Probe(ABC):
    """One quantity of every layer, from that layer's prefill state alone.

    `layers` are the layers to look at, None for all. `needs` is read before the prefill, so that one pass serves
    all probes of a run. An `answered` probe is shown a pass over the prompt and FullKV's greedy answer to it:
    under causal masking its rows after the prompt are the attention of decoding. `axes` is what a layer's values
    run over, and so how they are drawn: heads, tokens, or map (tokens × tokens).
    """

    needs: Needs = Needs()
    answered: bool = False
    layers: list[int] | None = None
    axes: str = "heads"

    @property
    @abstractmethod
    def quantity(self) -> str:
        """What the values are, with their unit: the label of a figure's axis."""

    @abstractmethod
    def observe(self, layer: LayerState, prompt: int) -> Tensor:
        """The values of one layer whose first `prompt` tokens are the prompt; float, of any shape."""


@dataclass(frozen=True)
class Observation:
    """A probe with its parameters; in a run it stands where a setting does."""

    name: str
    probe: Probe
    parameters: str  # the probe's configuration as canonical JSON

    @property
    def label(self) -> str:
        return self.name

    @property
    def key(self) -> str:
        """What the outcome depends on besides sample and model; and the name, which figures go by."""
        return json.dumps(["probe", self.name, self.parameters])


def build_probes(configs: Mapping[str, Mapping]) -> list[Observation]:
    """The configured probes in order; UserError names a bad value."""
    observations = []
    for name, config in configs.items():
        config = {key: value for key, value in config.items() if key != "about"}
        probe = build(config, f"probe {name!r}")
        if not isinstance(probe, Probe):
            raise UserError(f"probe {name!r}: {config['_target_']} is not a subclass of kvbench.probes.Probe")
        observations.append(Observation(name, probe, json.dumps(config, sort_keys=True)))
    return observations


def checked_layers(layers: object) -> list[int] | None:
    """null, or a list of layers counted from 0; anything else is refused."""
    if layers is None:
        return None
    if isinstance(layers, Sequence) and layers and all(type(layer) is int and layer >= 0 for layer in layers):
        return list(layers)
    raise UserError(f"layers={layers!r} must be a list of layers, counted from 0, or null for all")


def true_or_false(name: str, value: object) -> None:
    """Refuse anything but true and false."""
    if not isinstance(value, bool):
        raise UserError(f"{name}={value!r} must be true or false")
