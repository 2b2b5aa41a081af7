"""Loading a Hugging Face causal language model so that caches compute its attention."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import constants
from transformers import (
    AutoConfig,
    AutoTokenizer,
    GenerationConfig,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from kvbench.configuration import ModelSpec
from kvbench.errors import UserError
from kvbench.models.attention_interface import ATTENTION
from kvbench.models.auto_class import class_for
from kvbench.models.complete import check_complete, check_merged
from kvbench.models.embedded import embedded_folder
from kvbench.models.folder import check_config, not_json, weight_files
from kvbench.models.gguf_file import gguf_folder
from kvbench.models.hub import WHOLE, hub_options
from kvbench.models.late_arguments import check_late
from kvbench.models.layer_kinds import kinds_of
from kvbench.models.length_limit import check_length
from kvbench.models.likeliest_token import warn_of_other_choices
from kvbench.models.probe import ropes_of
from kvbench.models.random_weights import random_model, random_source
from kvbench.models.reader import Reader, TextModel, stop_tokens
from kvbench.models.reads_alike import takes_attention
from kvbench.models.rope_growth import Growth, growth_of
from kvbench.models.rope_parameters import check_rope_parameters
from kvbench.models.sane_config import check_sane
from kvbench.models.token_numbers import decoding_heads_of
from kvbench.utils.chat_template import as_read
from kvbench.utils.console import warn
from kvbench.utils.deadline import within
from kvbench.utils.device import offloaded
from kvbench.utils.model_shape import check_folder, check_shape, is_gguf
from kvbench.utils.text import first_line


@dataclass
class LoadedModel(Reader):
    """A model ready for prefill and decode, with its tokenizer."""

    spec: ModelSpec
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    source: str  # folder or hub id it came from
    checkpoint_dtype: str | None = None  # as config.json states it; None for a GGUF file
    stop_tokens: frozenset[int] = field(init=False)

    def __post_init__(self) -> None:
        self.stop_tokens = stop_tokens(self.spec, self.model.generation_config, self.tokenizer, self.config)

    @property
    def config(self) -> PretrainedConfig:
        return self.model.config

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the weights."""
        return self.model.dtype

    @property
    def device(self) -> str:
        """Type of the device: cpu or cuda."""
        return str(self.model.device.type)

    @property
    def growth(self) -> Growth | None:
        """How its rotation changes with the length of the text (Phi-3, Phi-4-mini); None: it does not."""
        return growth_of(self.model)


def source_of(spec: ModelSpec) -> tuple[str, dict[str, Any]]:
    """The folder or hub id of a model, and the options of `from_pretrained` for the hub."""
    path = spec.path
    if path and _is_gguf(spec):
        path = str(gguf_folder(Path(path).expanduser()))
    elif path:
        check_folder(path)
    source = path or (str(embedded_folder(spec.embedded)) if spec.embedded else spec.hub_id)
    assert source is not None, "ModelSpec holds one of the three"
    return source, hub_options(source, spec.revision) if source == spec.hub_id else {}


def _is_gguf(spec: ModelSpec) -> bool:
    """Whether the model is a GGUF file's, in a package or at `path`."""
    return is_gguf(spec.path) if spec.path else bool(spec.embedded)


def _tokenizer(spec: ModelSpec, source: str, options: dict[str, Any]) -> PreTrainedTokenizerBase:
    """The tokenizer, whose chat template benchmarks see as the model reads it."""
    tokenizer = AutoTokenizer.from_pretrained(source, trust_remote_code=False, **options)
    return as_read(tokenizer, spec.chat_template, spec.template_args)


def load_texts(spec: ModelSpec) -> TextModel:
    """Tokenizer, chat template and configuration of a model whose weights another program loads."""
    if spec.random is not None:
        raise UserError(f"model {spec.name!r} has random weights, which only kvbench makes")
    source, options = source_of(spec)
    with unreadable(spec, source, options):
        if not options:
            check_config(Path(source))
        read_config(source, options)
        config = AutoConfig.from_pretrained(source, trust_remote_code=False, **options)
        if spec.shape:
            check_shape(spec.name, spec.shape, config.to_dict(), source)
        tokenizer = _tokenizer(spec, source, options)
        try:
            generation = GenerationConfig.from_pretrained(source, **options)
        except OSError:  # a model without the file
            generation = GenerationConfig.from_model_config(config)
    ends = stop_tokens(spec, generation, tokenizer, config)
    warn_of_other_choices(spec.name, generation, config, ends)
    return TextModel(with_length(spec, config), config, tokenizer, source, ends)


def load(spec: ModelSpec) -> LoadedModel:
    """Load weights and tokenizer: safetensors only, no remote code, kvbench's attention."""
    make_current(device := spec.resolve_device())
    if spec.device == "auto" and device == "cpu":
        warn_of_unused(torch.accelerator.current_accelerator(check_available=True))
    if spec.random is not None:
        return _drawn(spec)
    source, options = source_of(spec)
    with unreadable(spec, source, options), takes_attention(spec.name):
        within(WHOLE, partial(check_merged, source, options))
        if not options:
            check_config(Path(source))
            weight_files(Path(source))
        raw = read_config(source, options)
        check_rope_parameters(raw, f"config.json of {source}")
        check_rope_parameters(spec.load_args or {}, "model.load_args")
        config = AutoConfig.from_pretrained(source, trust_remote_code=False, **options)
        check_shape(spec.name, spec.shape or {}, config.to_dict(), source)
        check_late(config, raw, spec.load_args or {})
        auto, text, left_out = class_for(spec.name, config)
        tokenizer = within(WHOLE, partial(_tokenizer, spec, source, options))
        model, loading = auto.from_pretrained(
            source,
            dtype=spec.resolve_dtype(),
            attn_implementation=ATTENTION,
            trust_remote_code=False,
            use_safetensors=True,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # reported by check_complete, in one line
            device_map=spec.device_map or ({"": device} if device != "cpu" else None),
            **({} if text is None else {"config": text}),
            **options,
            **(spec.load_args or {}),
        )
    check_complete(f"model {spec.name!r} from {source}", loading, left_out)
    if spec.device_map and any(kind.readers for kind in kinds_of(model.config)):
        raise UserError(
            f"model.device_map={spec.device_map}: layers of {spec.name} read keys and values of earlier layers, which "
            "would lie on another device: model.device="
        )
    if parts := offloaded(model):
        warn(
            f"model.device_map={spec.device_map}: the GPU has no room for {len(parts)} of {len(model.hf_device_map)} "
            f"parts of {spec.name} ({parts[0]} to {parts[-1]}), which are copied to it for every token"
        )
    for config in (model.config, model.config.get_text_config(decoder=True)):
        config.return_dict = True  # false in a few config.json, with which transformers' own passes fail
    ropes_of(model.eval())
    check_length(spec, model)
    if any(kind.latent for kind in kinds_of(model.config)):
        numbers = decoding_heads_of(model.config).head_dim
        warn(
            f"{spec.name} stores latents, {numbers} numbers a token and layer: methods score the keys of its heads and "
            "keep one set of tokens for all heads of a layer"
        )
    # a GGUF file's config.json is of its conversion; models in such files are served with caches in 16 bits
    published = None if _is_gguf(spec) else published_dtype(raw)
    loaded = LoadedModel(with_length(spec, model.config), model, tokenizer, source, published)
    if model.can_generate():
        warn_of_other_choices(spec.name, model.generation_config, model.config, loaded.stop_tokens)
    return loaded


def published_dtype(config: Mapping[str, Any]) -> str | None:
    """The dtype of a config.json, or of its text model: float32, bfloat16, …"""
    for part in (config, config.get("text_config") or {}):
        for name in ("dtype", "torch_dtype"):  # since transformers 4.56, and before
            if isinstance(part.get(name), str):
                return str(part[name])
    return None


def read_config(source: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """config.json, before transformers acts on it. Raises UserError for impossible sizes, and for code of the hub."""
    raw: dict[str, Any] = within(WHOLE, partial(PretrainedConfig.get_config_dict, source, **options))[0]
    check_sane(raw, f"config.json of {source}")
    return raw


def with_length(spec: ModelSpec, config: PretrainedConfig) -> ModelSpec:
    """The spec with a context limit: its own, or the positions of the model's configuration."""
    if spec.max_length is not None:
        return spec
    length = getattr(config.get_text_config(), "max_position_embeddings", None)
    if length is None:
        raise UserError(f"the configuration of {spec.name} has no max_position_embeddings: set model.max_length=TOKENS")
    return replace(spec, max_length=length)


@contextmanager
def unreadable(spec: ModelSpec, source: str, options: Mapping[str, Any]) -> Iterator[None]:
    """Raise UserError for any error of transformers about a model that it cannot read: a folder can hold anything.

    `options` are hub_options'; empty for a folder.
    """
    try:
        yield
    except (UserError, MemoryError, torch.OutOfMemoryError) as error:
        if isinstance(error, UserError) and spec.embedded and not spec.path:
            raise UserError(f"{error}; delete {source} to convert the embedded model again") from error
        raise
    except Exception as error:
        reason = first_line(error)
        if options.get("local_files_only") and isinstance(error, OSError):
            reason = f"{constants.ENDPOINT} does not answer, and the local cache does not have it"
        if isinstance(error, ModuleNotFoundError) and error.name:
            reason += f": pip install {error.name.partition('.')[0]}"
        if not options and (broken := not_json(Path(source))):
            reason += f"; {broken} is not JSON"
        if options and isinstance(error, OSError):
            reason += " (model.path=FOLDER loads a local copy; without a network, HF_HUB_OFFLINE=1 fails at once)"
        raise UserError(f"model {spec.name!r} could not be loaded from {source}: {reason}") from error


def make_current(device: str) -> None:
    """Make a GPU with a number the current one, to which new work goes. Raises UserError if there is no such device."""
    try:
        torch.empty(0, device=device)
        if torch.device(device).type == "cuda" and torch.device(device).index is not None:
            torch.cuda.set_device(device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = first_line(error).rstrip(".")
        raise UserError(
            f"model.device={device} cannot be used here: {reason}; model.device=auto takes what is available"
        ) from error


def warn_of_unused(accelerator: torch.device | None) -> None:
    """Warn if `model.device=auto` takes the CPU although there is an accelerator that is no CUDA GPU."""
    if accelerator is not None and accelerator.type != "cuda":
        kind = accelerator.type
        warn(f"model.device=auto takes the CPU. model.device={kind} computes on this machine's {kind}: docs/gpu.md")


def _drawn(spec: ModelSpec) -> LoadedModel:
    """A model of random weights, with another model's tokenizer."""
    if spec.device_map is not None:
        raise UserError(f"model.device_map={spec.device_map}: random weights are on one device, model.device=")
    assert spec.random is not None, "load draws weights for specs that have a configuration"
    device = spec.resolve_device()
    dtype = spec.resolve_dtype()
    dtype = torch.bfloat16 if dtype == "auto" else dtype
    model = random_model(spec.random, dtype, device)
    source, options = source_of(spec)
    with unreadable(spec, source, options):
        tokenizer = within(WHOLE, partial(_tokenizer, spec, source, options))
    if len(tokenizer) > model.config.vocab_size:
        raise UserError(
            f"model.random.vocab_size={model.config.vocab_size} is less than the {len(tokenizer)} tokens of {source}"
        )
    return LoadedModel(spec, model.eval(), tokenizer, random_source(spec.random))
