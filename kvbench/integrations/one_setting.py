"""One setting from keys of the command line, for programs that read only some of them."""

from collections.abc import Collection, Sequence

from kvbench.errors import UserError
from kvbench.evaluation.settings import Setting

METHOD_KEYS = ("method", "decode.compress", "press", "press_args")  # of a setting, beside its ratio or budget


def one_setting(settings: Sequence[Setting], who: str) -> Setting:
    """The single setting of a configuration. Raises UserError, in the name of `who`, for none or several."""
    if len(settings) != 1:
        labels = ", ".join(setting.label for setting in settings) or "none"
        raise UserError(f"{who} runs one setting at a time, not {labels}: one method=, with one ratio= or budget=")
    return settings[0]


def check_read(overrides: Sequence[str], keys: Collection[str], who: str) -> None:
    """Raise UserError for an override of another key than `keys` and the keys in them: it would have no effect."""
    for override in overrides:
        group, _, place = override.partition("=")[0].lstrip("+~").partition("@")
        key = place or group  # storage@method.snapkv.storage=kivi is of the method
        if "=" in override and not any(key == name or key.startswith(f"{name}.") for name in keys):
            raise UserError(f"{override} has no effect for {who}, which reads {', '.join(keys)} and the keys in them")
