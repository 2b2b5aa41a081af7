"""Whether a checkpoint and the model of its configuration have the same weights."""

from collections.abc import Mapping
from typing import Any

from transformers.utils import find_adapter_config_file

from kvbench.errors import UserError

# Buffers that old checkpoints saved with their weights; the model computes them.
BUFFERS = ("rotary_emb.inv_freq", "masked_bias", "attn.bias")


def check_complete(checkpoint: str, loading: Mapping[str, Any], left_out: tuple[str, ...] = ()) -> None:
    """Raise UserError if a checkpoint and the model of its configuration differ in their weights.

    transformers draws missing weights at random and ignores weights without a place. `checkpoint` names the model in
    messages. `loading` is transformers' output_loading_info, in which tied weights are not missing; weights whose names
    begin with one of `left_out` are ignored on purpose.
    """
    for kind, problem in (
        ("missing_keys", "lacks"),
        ("mismatched_keys", "has in another shape"),
        ("unexpected_keys", "has no place in its configuration for"),
    ):
        names = sorted(str(key[0] if isinstance(key, tuple) else key) for key in loading.get(kind) or ())
        names = [name for name in names if not name.endswith(BUFFERS) and not name.startswith(left_out)]
        if names:
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            raise UserError(f"{checkpoint} {problem} {', '.join(names[:3])}{more}")


def check_merged(source: str, options: Mapping[str, Any]) -> None:
    """Raise UserError for a folder or hub id with an adapter of peft (LoRA) in files of its own.

    Where peft is installed, transformers adds it to the weights, and a hub id is the model that it names; elsewhere
    it does not: one source would be two models. `options` are hub_options'.
    """
    if find_adapter_config_file(source, **options):
        raise UserError(
            f"{source} has an adapter of peft (adapter_config.json), which is not read: merge it into the weights "
            "(merge_and_unload) and save the model without it"
        )
