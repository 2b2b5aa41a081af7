"""A layer of a `CompressedCache`, which first captures the prompt and is then what a method made of it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn, Protocol

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig

from kvbench.errors import UserError
from kvbench.evaluation.settings import Setting
from kvbench.models.attending_layer import AttendingLayer, attend_one_by_one
from kvbench.models.latents import Latents
from kvbench.models.layer_kinds import check_continues
from kvbench.ops.softmax import Scaling

# In the message of the plain RuntimeError that torch raises for a tensor of its inference mode.
OUTSIDE = "inference tensor outside InferenceMode"
TWO_MODES = (
    "this CompressedCache has read tokens under torch.inference_mode(), and further ones come outside of it, where "
    "torch lets nobody write into its tensors: read all of them under it, or all of them without"
)


class WholeCache(Protocol):
    """The cache of all layers, as a layer knows it."""

    setting: Setting
    config: PreTrainedConfig
    lowest: "CompressingLayer"

    @property
    def compressed(self) -> object | None:
        """The compressed prompt; None before it was read."""

    def begin(self, n: int) -> None: ...

    def attended(self) -> None: ...

    def check_whole(self) -> None: ...

    def check_reader(self, module: nn.Module) -> None: ...

    def refuse(self, other: str) -> NoReturn: ...


@contextmanager
def in_one_mode() -> Iterator[None]:
    """Raise UserError where tokens read outside of torch.inference_mode() are written into tensors made within it."""
    try:
        yield
    except RuntimeError as error:
        if OUTSIDE not in str(error):
            raise
        raise UserError(TWO_MODES) from error


@contextmanager
def as_stored(x: Tensor) -> Iterator[None]:
    """Within the block nothing is differentiated, and tensors are computed with in their own dtypes, as in the harness:
    under torch.autocast scores and codes in float32 would be rounded to 16 bits."""
    with torch.no_grad(), torch.autocast(x.device.type, enabled=False), in_one_mode():
        yield


class CompressingLayer(AttendingLayer):
    """One layer of a CompressedCache: first `inner` captures the prompt, then it is the compressed cache."""

    def __init__(self, cache: WholeCache, index: int, readers: int, latent: bool):
        super().__init__()
        self.cache, self.index, self.readers, self.latent = cache, index, readers, latent
        self.inner: AttendingLayer | None = None
        self.waiting: tuple[Tensor, Tensor] | None = None  # new keys and values of a cache that takes no blocks
        # of the prompt: number of heads, then width of keys and of values, then their dtypes
        self.token: tuple[int, int, int, torch.dtype, torch.dtype] | None = None

    @property
    def windowed(self) -> bool:
        return self.inner is not None and self.inner.windowed

    @property
    def absorbs(self) -> bool:
        return self.inner is not None and self.inner.absorbs

    def read_by(self, module: nn.Module) -> None:
        self.cache.check_reader(module)

    def keep_latents(self, latents: Latents) -> None:
        self._layer_for(latents.latent).keep_latents(latents)

    def _layer_for(self, new: Tensor) -> AttendingLayer:
        """The layer that takes new tokens [1, heads, t, …]; the first ones are the prompt."""
        if new.shape[0] != 1:
            raise UserError(f"a batch of {new.shape[0]} sequences: a CompressedCache holds one (no beams, no batch)")
        if self is self.cache.lowest:
            self.cache.check_whole()
        if self.inner is None:
            self.cache.begin(new.shape[2])
        return self.layer

    @property
    def layer(self) -> AttendingLayer:
        """The layer that holds tokens, after the first `append`."""
        assert self.inner is not None, "`append` comes first"
        return self.inner

    def append(self, keys: Tensor, values: Tensor) -> None:
        if keys.dtype != values.dtype and torch.is_autocast_enabled(keys.device.type):
            raise UserError(
                f"torch.autocast makes keys of {keys.dtype} and values of {values.dtype}, and a cache counts "
                f"its bytes in one dtype: convert the model instead, model.to({values.dtype})"
            )
        with as_stored(keys):
            self._append(keys, values)

    def _append(self, keys: Tensor, values: Tensor) -> None:
        t, inner = keys.shape[2], self._layer_for(keys)
        token = (keys.shape[1], keys.shape[3], values.shape[3], keys.dtype, values.dtype)
        if self.token not in (None, token) and not self.latent:  # latents come expanded with the prompt only
            self.cache.refuse("one whose keys and values have other shapes or another dtype")
        self.token = token
        if self.cache.compressed and t > 1:
            check_continues(self.cache.config, "generate reads further tokens at once")
        if self.cache.compressed and t > 1 and not inner.takes_blocks:
            if self.readers:
                raise UserError(
                    f"{self.cache.setting.label} reads one token at a time, and later layers of this model attend to "
                    f"the same keys: {t} further tokens have to come one by one, or in the harness"
                )
            self.waiting = keys, values
        else:
            inner.take(keys, values)

    def attend(self, query: Tensor, scaling: Scaling) -> Tensor:
        with as_stored(query):
            if self.waiting:
                (keys, values), self.waiting = self.waiting, None
                return attend_one_by_one(self.layer, keys, values, query, scaling)
            out = self.layer.attend(query, scaling)
            self.cache.attended()
            return out

    def reread(self, query: Tensor, scaling: Scaling) -> Tensor:
        with as_stored(query):
            out = self.layer.reread(query, scaling)
            self.cache.attended()
            return out

    @property
    def keys(self) -> NoReturn:
        """Raises UserError, as `values` does: they are compressed, and `inner` alone knows how to read them."""
        raise UserError(
            "something else than kvbench reads the keys and values of a CompressedCache (a press of kvpress? a hook?): "
            "they are compressed, and their layers in `cache.caches` attend to them"
        )

    @keys.setter
    def keys(self, _: None) -> None:
        """transformers sets None before there are tokens."""

    values = keys

    @property
    def shape(self) -> NoReturn:
        """Raises UserError: any attention function but kvbench's first reads the shape of its keys."""
        raise UserError(
            "a CompressedCache reached a model whose attention is not kvbench's: hand it to the model that it was made "
            "for, within its kvbench.compress block"
        )

    def crop(self, max_length: int) -> None:
        raise UserError("a CompressedCache cannot remove tokens, which assisted decoding needs: decode without it")

    def reorder_cache(self, *_: object) -> NoReturn:
        """Raises UserError, as its other names in transformers do: beams and copies of a sequence are a batch."""
        raise UserError("a CompressedCache holds one sequence (no beams, no batch): copy.deepcopy(cache) makes another")

    batch_repeat_interleave = batch_select_indices = reorder_cache

    def reset(self) -> None:
        raise UserError("a CompressedCache holds one prompt: make a new one")
