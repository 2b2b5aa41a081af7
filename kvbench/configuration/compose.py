"""From overrides to a Configuration. Overrides can be checked by themselves first, since composing takes a second."""

from collections.abc import Sequence

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from kvbench.configuration.conf import composed, plain
from kvbench.configuration.configuration import Configuration
from kvbench.configuration.mistakes import one_line
from kvbench.errors import UserError


def configured(overrides: Sequence[str]) -> Configuration:
    """The configuration of a command line's overrides. Raises UserError with the first mistake found."""
    try:
        return Configuration.from_plain(composed(overrides))
    except (HydraException, OmegaConfBaseException) as error:
        raise UserError(one_line(error)) from error


def resolved(cfg: DictConfig) -> Configuration:
    """The configuration that Hydra composed. Raises UserError with the first mistake found."""
    return Configuration.from_plain(plain(cfg))


def typed_values(arguments: Sequence[str]) -> dict[str, object]:
    """The values of a command's overrides by their keys.

    Sweeps, interpolations and anything but overrides are left out: their values are known only when Hydra composes.
    """
    try:
        parsed = OverridesParser.create().parse_overrides(list(arguments))
    except HydraException:
        return {}
    values = {part.key_or_group: part.value() for part in parsed if not (part.is_sweep_override() or part.is_delete())}
    return {key: value for key, value in values.items() if not isinstance(value, str) or "$" not in value}
