"""Arguments of `from_pretrained` that transformers sets after a configuration has decided its layers by them."""

from collections.abc import Mapping
from typing import Any

from transformers import PreTrainedConfig

from kvbench.errors import UserError
from kvbench.models.layer_kinds import kinds_of


def check_late(config: PreTrainedConfig, raw: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Raise UserError for arguments `given` that would make other layers if they were in config.json, `raw`: Qwen2's
    use_sliding_window would be part of a run's identity and change nothing."""
    # transformers makes parts of a configuration anew with such an argument
    own = {key: value for key, value in given.items() if hasattr(config, key) and not isinstance(value, Mapping)}
    try:
        as_written = kinds_of(type(config).from_dict({**raw, **own}))
        as_given = kinds_of(type(config).from_dict({**raw}, **own))
    except Exception:
        return  # loading the model says why
    if as_written != as_given:
        raise UserError(
            f"model.load_args: transformers sets {', '.join(own)} too late to change the kinds of layers, which it "
            "would in config.json: write it there in a local copy, model.path=FOLDER"
        )
