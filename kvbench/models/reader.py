"""How a model's texts become tokens and back: chat template, tokenizer and stop tokens, without its weights."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from transformers import (
    BatchEncoding,
    GenerationConfig,
    PretrainedConfig,
    PreTrainedTokenizerBase,
)

from kvbench.configuration import ModelSpec
from kvbench.errors import UserError
from kvbench.utils.chat_template import RAW, bounded, check_template
from kvbench.utils.text import first_line

# Put before chat templates that write today's date: the same day every day, so that prompts stay as they are. It is the
# default of Llama-3.1's template.
SAME_DAY = (
    "{%- macro strftime_now(format) -%}{{ {'%Y-%m-%d': '2024-07-26', '%d %B %Y': '26 July 2024'}"
    ".get(format, '26 Jul 2024') }}{%- endmacro -%}"
)


class Reader:
    """What reads and writes a model's texts. Has a ModelSpec `spec` and a `tokenizer`."""

    spec: ModelSpec
    tokenizer: PreTrainedTokenizerBase

    def render(self, prompt: str, chat: bool, prefix: str = "", history: Sequence[tuple[str, str]] = ()) -> str:
        """The text the model reads: `prompt` in its chat template where `chat` and it has one, then `prefix`.

        `history` has role and content of the messages before the prompt. Raises UserError where there is no chat
        template to write them in, or where it fails.
        """
        if self.templated(chat):
            prompt = self.written([*history, ("user", prompt)])
            if not prompt.strip():
                raise UserError(f"the chat template of {self.spec.name} writes nothing {RAW}")
        elif history:
            raise UserError(
                f"{self.spec.name} reads this prompt without a chat template, but the prompt has several messages"
            )
        return prompt + prefix

    def written(self, messages: Sequence[tuple[str, str]], answering: bool = True) -> str:
        """Messages, each a role and its content, in the chat template; `answering`: up to where an answer begins.

        Raises UserError where the template fails.
        """
        try:
            check_template(self.spec.name, template := self.template)
            with bounded(self.spec.name):
                text: str = self.tokenizer.apply_chat_template(
                    [{"role": role, "content": content} for role, content in messages],
                    add_generation_prompt=answering,
                    tokenize=False,
                    chat_template=template,
                    **(self.spec.template_args or {}),
                )
        except UserError:
            raise
        except Exception as error:  # a template is a program: it can raise anything
            raise UserError(f"the chat template of {self.spec.name} fails: {first_line(error)} {RAW}") from error
        return text

    def tokenise(self, text: str, chat: bool, **options: Any) -> BatchEncoding:
        """Token ids of a rendered text; a chat template has written the special tokens itself.

        Raises UserError where the tokenizer would end a raw text, which the model is to go on with.
        """
        if not self.templated(chat) and (appended := self._appended):
            raise UserError(
                f"the tokenizer of {self.spec.name} appends {appended!r} to a raw text, which ends it before an "
                'answer: set "add_eos_token": false in tokenizer_config.json of a local copy, model.path=FOLDER'
            )
        return self.tokenizer(text, add_special_tokens=not self.templated(chat), **options)

    def encode(self, prompt: str, chat: bool, prefix: str = "") -> Tensor:
        """Token ids [n] of a prompt; inside the model's chat template when `chat` and the model has one."""
        return torch.tensor(self.tokenise(self.render(prompt, chat, prefix), chat)["input_ids"])

    def templated(self, chat: bool) -> bool:
        """Whether a prompt is written in the chat template."""
        return chat and self.spec.chat_template == "auto" and self.tokenizer.chat_template is not None

    @cached_property
    def _appended(self) -> str:
        """What the tokenizer writes behind a raw text; "" for nothing."""
        plain, whole = self.plain_tokens("a"), self.tokenizer("a")["input_ids"]
        behind = next((at + len(plain) for at in range(len(whole)) if whole[at : at + len(plain)] == plain), len(whole))
        text: str = self.tokenizer.decode(whole[behind:])
        return text

    def special_tokens(self, text: str) -> list[int]:
        """The special tokens in a text, in their order: those that no user's text should contain."""
        special = {token for token, added in self.tokenizer.added_tokens_decoder.items() if added.special}
        special |= {*self.tokenizer.all_special_ids}
        return [token for token in self.plain_tokens(text) if token in special]

    @property
    def template(self) -> str:
        """The chat template."""
        template: str = self.tokenizer.get_chat_template()
        return SAME_DAY + template if "strftime_now" in template else template

    @cached_property
    def newline(self) -> int:
        """The token of a line end: the last one that LongBench's code gets from encoding it."""
        return self.plain_tokens("\n")[-1]

    def plain_tokens(self, text: str) -> list[int]:
        """Token ids of a part of a text, without special tokens."""
        tokens: list[int] = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        return tokens

    def decode(self, tokens: list[int]) -> str:
        text: str = self.tokenizer.decode(tokens, skip_special_tokens=True)
        return text


@dataclass
class TextModel(Reader):
    """A model without its weights: what makes prompts and reads answers where another program computes them."""

    spec: ModelSpec
    config: PretrainedConfig
    tokenizer: PreTrainedTokenizerBase
    source: str  # folder or hub id it came from
    stop_tokens: frozenset[int]

    # Prompts that growing frequencies split are a matter of caches, which are the other program's.
    growth = None

    @property
    def dtype(self) -> torch.dtype:
        """The one in which kvbench itself would load the weights."""
        dtype = self.spec.resolve_dtype()
        return getattr(self.config, "dtype", None) or torch.float32 if dtype == "auto" else dtype

    @property
    def device(self) -> str:
        """Type of the device on which kvbench itself would load the weights."""
        return str(torch.device(self.spec.resolve_device()).type)


def stop_tokens(spec: ModelSpec, generation: GenerationConfig, tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    """The tokens that end a text by a model's generation configuration, and those of model.stop_tokens."""
    eos = generation.eos_token_id
    ids = [] if eos is None else eos if isinstance(eos, list) else [eos]
    if not all(isinstance(one, int) and not isinstance(one, bool) for one in ids):
        raise UserError(
            f"the generation configuration of {spec.name} has eos_token_id={eos!r}: it must be an integer, a list of "
            "integers or null"
        )
    return frozenset(ids) | {_token(name, spec, tokenizer) for name in spec.stop_tokens or ()}


def _token(name: int | str, spec: ModelSpec, tokenizer: PreTrainedTokenizerBase) -> int:
    vocabulary: dict[str, int] = tokenizer.get_vocab()
    known = name in vocabulary.values() if isinstance(name, int) else name in vocabulary
    if not known:
        raise UserError(f"model.stop_tokens: {name!r} is no token of {spec.name}")
    return name if isinstance(name, int) else vocabulary[name]
