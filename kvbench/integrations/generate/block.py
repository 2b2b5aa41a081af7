"""`with kvbench.compress(model, …):` every `generate` in the block decodes from a compressed prompt."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakSet

from transformers import Cache, PreTrainedModel

from kvbench.errors import UserError
from kvbench.integrations.generate.cache import CompressedCache
from kvbench.integrations.generate.running import is_decoding
from kvbench.integrations.generate.setting import setting_of
from kvbench.methods import Method
from kvbench.models.attention_interface import ATTENTION, restore_registered
from kvbench.models.cache_argument import NAMES, by_name, name_of
from kvbench.models.compiled_in_place import uncompiled
from kvbench.models.implementations import restored_attention
from kvbench.models.probe import ropes_of

# The positional and keyword arguments of the model's forward pass.
Arguments = tuple[object, ...]
Keywords = dict[str, Any]

OPEN: WeakSet[PreTrainedModel] = WeakSet()  # models that are in a block


@dataclass
class Compression:
    """The value of a block of `kvbench.compress`.

    caches   a CompressedCache for each prompt that the model has read in the block, the latest last
    """

    caches: list[CompressedCache] = field(default_factory=list)

    @property
    def cache(self) -> CompressedCache:
        """The cache of the latest prompt. Raises UserError before the first."""
        if not self.caches:
            raise UserError("no prompt was read in this block yet")
        return self.caches[-1]


@contextmanager
def compress(
    model: PreTrainedModel,
    method: str | Method,
    ratio: float | None = None,
    budget: int | None = None,
    overrides: Sequence[str] = (),
) -> Iterator[Compression]:
    """Within the block the model reads every prompt into its own CompressedCache, in `generate` and in `forward`.

        with kvbench.compress(model, method="snapkv", ratio=0.3) as compression:
            output = model.generate(**inputs, max_new_tokens=100)
        compression.cache.ratio["r_bytes"]

    method      a name of conf/method, or an object of a method's class.
    ratio       share of the prompt's tokens to keep, or
    budget      tokens per layer and head.
    overrides   the method's KEY=VALUE of the command line, e.g. ["method.snapkv.scoring.window=16"].

    Within the block the model's attention function is kvbench's; a forward pre-hook replaces an empty cache; a model
    that was compiled, as a whole or in parts, runs uncompiled. Nothing in transformers is patched. A model can be in
    one block at a time, across all threads. Raises UserError for a wrong setting, before the model runs.
    """
    if not isinstance(model, PreTrainedModel):
        raise UserError(f"model must be a model of transformers, a PreTrainedModel, not {type(model).__name__}")
    setting = setting_of(method, ratio, budget, overrides)
    compression = Compression()
    config = model.config.get_text_config(decoder=True)
    depth = getattr(config, "num_hidden_layers", None)

    def insert_cache(reader: object, args: Arguments, kwargs: Keywords) -> tuple[Arguments, Keywords] | None:
        if reader is not model:  # a copy made in the block, which has the hook too
            return None
        if getattr(config, "num_hidden_layers", None) != depth:
            config.num_hidden_layers = depth  # generate leaves the model cut after an error
            raise UserError(
                "assistant_early_exit: a CompressedCache cannot remove tokens, which assisted decoding needs: decode "
                "without it"
            )
        args, kwargs = (), by_name(model, args) | kwargs
        cache = next((kwargs[name] for name in NAMES if name in kwargs), None)
        if cache is not None and not isinstance(cache, Cache):
            raise UserError(
                f"past_key_values must be a cache of transformers, not {type(cache).__name__}: leave it out"
            )
        if isinstance(cache, CompressedCache):
            cache.check_model(model)
            cache.check_states()
            return args, kwargs
        if kwargs.get("use_cache") is False:
            raise UserError("use_cache=False: in a kvbench.compress block a prompt is read into a cache; leave it out")
        if isinstance(cache, Cache) and cache.get_seq_length() > 0:
            raise UserError(
                "a cache from outside the block has tokens already: pass the whole prompt to generate instead (prefix "
                "tuning, whose prefix is such a cache, is not supported)"
            )
        if compression.caches and is_decoding():
            compression.cache.check_goes_on()
        new = CompressedCache(model, setting)
        compression.caches.append(new)
        arguments = {name: value for name, value in kwargs.items() if name not in NAMES}
        return args, arguments | {name_of(model): new}  # not the latest, which may be another thread's

    if model in OPEN:
        raise UserError(
            "this model is in a kvbench.compress block already, here or in another thread: leave that block first"
        )
    OPEN.add(model)
    try:
        with restored_attention(model), uncompiled(model):
            restore_registered()
            model.set_attn_implementation(ATTENTION)
            ropes_of(model)  # reads a token, which the hook would take for a prompt
            hook = model.register_forward_pre_hook(insert_cache, with_kwargs=True)
            try:
                yield compression
            finally:
                hook.remove()
    finally:
        OPEN.discard(model)
