"""Loading a Hugging Face causal language model so that caches compute its attention."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path

import torch
from huggingface_hub import constants
from torch import Tensor
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    BatchEncoding,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from kvbench.errors import UserError
from kvbench.models.attention_interface import ATTENTION
from kvbench.models.chat_template import RAW, bounded, check_template
from kvbench.models.embedded import embedded_folder
from kvbench.models.folder import check_config, weight_files
from kvbench.models.hub import WHOLE, hub_options
from kvbench.models.random_weights import random_model, random_source
from kvbench.models.sane_config import check_sane
from kvbench.models.spec import DTYPES, ModelSpec
from kvbench.utils.deadline import within
from kvbench.utils.model_shape import check_shape
from kvbench.utils.text import first_line

# Put before chat templates that write today's date: the same day every day, so that prompts stay as they are. It is the
# default of Llama-3.1's template.
SAME_DAY = (
    "{%- macro strftime_now(format) -%}{{ {'%Y-%m-%d': '2024-07-26', '%d %B %Y': '26 July 2024'}"
    ".get(format, '26 Jul 2024') }}{%- endmacro -%}"
)
# Buffers that old checkpoints saved with their weights; the model computes them.
BUFFERS = ("rotary_emb.inv_freq", "masked_bias", "attn.bias")


@dataclass
class LoadedModel:
    """A model ready for prefill and decode, with its tokenizer."""

    spec: ModelSpec
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    source: str  # folder or hub id it came from
    stop_tokens: frozenset[int] = field(init=False)

    def __post_init__(self):
        eos = self.model.generation_config.eos_token_id
        ids = [] if eos is None else eos if isinstance(eos, list) else [eos]
        if not all(isinstance(one, int) and not isinstance(one, bool) for one in ids):
            raise UserError(
                f"the generation configuration of {self.spec.name} has eos_token_id={eos!r}: it must be an integer, "
                "a list of integers or null"
            )
        self.stop_tokens = frozenset(ids)

    def render(self, prompt: str, chat: bool, prefix: str = "", history: Sequence[tuple[str, str]] = ()) -> str:
        """The text the model reads: `prompt` in its chat template where `chat` and it has one, then `prefix`.

        `history` has role and content of the messages before the prompt. Raises UserError where there is no chat
        template to write them in, or where it fails.
        """
        if self.templated(chat):
            turns = [{"role": role, "content": content} for role, content in [*history, ("user", prompt)]]
            try:
                check_template(self.spec.name, template := self._template)
                with bounded(self.spec.name):
                    prompt = self.tokenizer.apply_chat_template(
                        turns,
                        add_generation_prompt=True,
                        tokenize=False,
                        chat_template=template,
                        **(self.spec.template_args or {}),
                    )
            except UserError:
                raise
            except Exception as error:  # a template is a program: it can raise anything
                raise UserError(f"the chat template of {self.spec.name} fails: {first_line(error)} {RAW}") from error
            if not prompt.strip():
                raise UserError(f"the chat template of {self.spec.name} writes nothing {RAW}")
        elif history:
            raise UserError(
                f"{self.spec.name} reads this prompt without a chat template, but the prompt has several messages"
            )
        return prompt + prefix

    def tokenise(self, text: str, chat: bool, **options) -> BatchEncoding:
        """Token ids of a rendered text; a chat template has written the special tokens itself."""
        return self.tokenizer(text, add_special_tokens=not self.templated(chat), **options)

    def encode(self, prompt: str, chat: bool, prefix: str = "") -> Tensor:
        """Token ids [n] of a prompt; inside the model's chat template when `chat` and the model has one."""
        return torch.tensor(self.tokenise(self.render(prompt, chat, prefix), chat)["input_ids"])

    def templated(self, chat: bool) -> bool:
        """Whether a prompt is written in the chat template."""
        return chat and self.spec.chat_template == "auto" and self.tokenizer.chat_template is not None

    @property
    def _template(self) -> str:
        template = self.tokenizer.get_chat_template()
        return SAME_DAY + template if "strftime_now" in template else template

    @cached_property
    def newline(self) -> int:
        """The token of a line end: the last one that LongBench's code gets from encoding it."""
        return self.plain_tokens("\n")[-1]

    @property
    def longrope_switch(self) -> int | None:
        """The length beyond which LongRoPE rotates with other frequencies (Phi-3, Phi-4-mini); None elsewhere."""
        embedding = getattr(self.model.base_model, "rotary_emb", None)
        if getattr(embedding, "rope_type", None) != "longrope":
            return None
        config = self.model.config.get_text_config()
        return config.rope_parameters["original_max_position_embeddings"]

    def plain_tokens(self, text: str) -> list[int]:
        """Token ids of a part of a text, without special tokens."""
        return self.tokenizer(text, add_special_tokens=False)["input_ids"]

    def decode(self, tokens: list[int]) -> str:
        return self.tokenizer.decode(tokens, skip_special_tokens=True)


def load(spec: ModelSpec) -> LoadedModel:
    """Load weights and tokenizer: safetensors only, no remote code, kvbench's attention."""
    make_current(device := spec.resolve_device())
    source = spec.path or (str(embedded_folder(spec.embedded)) if spec.embedded else spec.hub_id)
    if spec.random is not None:
        return _drawn(spec, source)
    options = hub_options(source, spec.revision) if source == spec.hub_id else {}
    with unreadable(spec, source, options):
        if not options:
            check_config(Path(source))
            weight_files(Path(source))
        config = within(WHOLE, partial(PretrainedConfig.get_config_dict, source, **options))[0]
        check_sane(config, f"config.json of {source}")
        if spec.shape:
            config = AutoConfig.from_pretrained(source, trust_remote_code=False, **options)
            check_shape(spec.name, spec.shape, config.to_dict(), source)
        tokenizer = within(WHOLE, partial(AutoTokenizer.from_pretrained, source, trust_remote_code=False, **options))
        model, loading = AutoModelForCausalLM.from_pretrained(
            source,
            dtype=spec.resolve_dtype(),
            attn_implementation=ATTENTION,
            trust_remote_code=False,
            use_safetensors=True,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # reported by check_complete, in one line
            device_map=spec.device_map or ({"": device} if device != "cpu" else None),
            **options,
            **(spec.load_args or {}),
        )
    check_complete(spec, source, loading)
    return LoadedModel(with_length(spec, model), model.eval(), tokenizer, source)


def with_length(spec: ModelSpec, model: PreTrainedModel) -> ModelSpec:
    """The spec with a context limit: its own, or the positions of the model's configuration."""
    if spec.max_length is not None:
        return spec
    length = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    if length is None:
        raise UserError(f"the configuration of {spec.name} has no max_position_embeddings: set model.max_length=TOKENS")
    return replace(spec, max_length=length)


@contextmanager
def unreadable(spec: ModelSpec, source: str, options: Mapping) -> Iterator[None]:
    """Whatever transformers raises for a model that it cannot read as a UserError: a folder can hold anything.

    `options` are those of hub_options, empty for a folder.
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
        raise UserError(
            f"model {spec.name!r} could not be loaded from {source}: {reason} "
            "(model.path=FOLDER loads a local copy; without a network, HF_HUB_OFFLINE=1 fails at once)"
        ) from error


def check_complete(spec: ModelSpec, source: str, loading: Mapping) -> None:
    """Raise UserError where the checkpoint and the model of its configuration differ in their weights.

    transformers draws missing weights at random and leaves out those it has no place for. `loading` is its
    output_loading_info, in which tied weights are not missing.
    """
    for kind, what in (
        ("missing_keys", "lacks"),
        ("mismatched_keys", "has in another shape"),
        ("unexpected_keys", "has no place in its configuration for"),
    ):
        names = sorted(str(key[0] if isinstance(key, tuple) else key) for key in loading.get(kind) or ())
        names = [name for name in names if not name.endswith(BUFFERS)]
        if names:
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            raise UserError(f"model {spec.name!r} from {source} {what} {', '.join(names[:3])}{more}")


def make_current(device: str) -> None:
    """Make a GPU that is named by its number the one that new work goes to; UserError where there is no such device."""
    try:
        torch.empty(0, device=device)
        if torch.device(device).type == "cuda" and torch.device(device).index is not None:
            torch.cuda.set_device(device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = first_line(error).rstrip(".")
        raise UserError(
            f"model.device={device} cannot be used here: {reason}; model.device=auto takes what is available"
        ) from error


def _drawn(spec: ModelSpec, source: str) -> LoadedModel:
    """A model of random weights, with the tokenizer of another one."""
    if spec.device_map is not None:
        raise UserError(f"model.device_map={spec.device_map}: random weights are on one device, model.device=")
    device = spec.resolve_device()
    dtype = DTYPES.get(spec.dtype, torch.float32 if device == "cpu" else torch.bfloat16)
    model = random_model(spec.random, dtype, device)
    options = hub_options(source, spec.revision) if source == spec.hub_id else {}
    with unreadable(spec, source, options):
        tokenizer = within(WHOLE, partial(AutoTokenizer.from_pretrained, source, trust_remote_code=False, **options))
    if len(tokenizer) > model.config.vocab_size:
        raise UserError(
            f"model.random.vocab_size={model.config.vocab_size} is less than the {len(tokenizer)} tokens of {source}"
        )
    return LoadedModel(spec, model.eval(), tokenizer, random_source(spec.random))
