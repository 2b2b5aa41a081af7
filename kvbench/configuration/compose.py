"""From overrides to a Configuration: what is typed is checked by itself first, since composing takes a second."""

from collections.abc import Sequence

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import DictConfig

from kvbench.config import composed, plain
from kvbench.configuration.configuration import Configuration


def configured(overrides: Sequence[str]) -> Configuration:
    """The configuration that the command line `overrides` stand for. Raises UserError with the first mistake found."""
    return Configuration.of(composed(overrides))


def resolved(cfg: DictConfig) -> Configuration:
    """The configuration that Hydra composed. Raises UserError with the first mistake found."""
    return Configuration.of(plain(cfg))


def typed_values(arguments: Sequence[str]) -> dict[str, object]:
    """The values of a command's overrides by their keys.

    What is swept over, interpolated or no override at all is left out: it is known once Hydra composes.
    """
    try:
        parsed = OverridesParser.create().parse_overrides(list(arguments))
    except HydraException:
        return {}
    given = {one.key_or_group: one.value() for one in parsed if not (one.is_sweep_override() or one.is_delete())}
    return {key: value for key, value in given.items() if not isinstance(value, str) or "$" not in value}
