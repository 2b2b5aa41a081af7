"""A model's texts as tokens and back: chat template, tokenizer and stop tokens, without its weights."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

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
from kvbench.utils.chat_template import RAW, bounded, check_template, template_of
from kvbench.utils.console import warn
from kvbench.utils.model_shape import is_gguf
from kvbench.utils.text import first_line


class Added(NamedTuple):
    """The special tokens that a tokenizer writes around a raw text, as text; "" for none."""

    before: str
    after: str


class Reader:
    """Reads and writes a model's texts, with its `spec` and `tokenizer`."""

    spec: ModelSpec
    tokenizer: PreTrainedTokenizerBase

    def render(self, prompt: str, chat: bool, prefix: str = "", history: Sequence[tuple[str, str]] = ()) -> str:
        """The text the model reads: `prompt`, in the model's chat template if `chat` and there is one, then `prefix`.

        `history` has role and content of the messages before the prompt. Raises UserError if there is no chat template
        for them, or if it fails.
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
        """Messages, each a role and its content, in the chat template; `answering`: with the header of an answer.

        Raises UserError if the template fails.
        """
        try:
            check_template(self.spec.name, template := self.template)
            with bounded(self.spec.name, len(messages)):
                return self.tokenizer.apply_chat_template(
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

    def tokenise(self, text: str, chat: bool, **options: Any) -> BatchEncoding:
        """Token ids of a rendered text; a chat template, or a raw text that begins with them, has the special tokens
        itself.

        Raises UserError if the tokenizer would end a raw text, which the model has to continue.
        """
        if not self.templated(chat) and (appended := self._added.after):
            raise UserError(
                f"the tokenizer of {self.spec.name} appends {appended!r} to a raw text, which ends it before an "
                'answer: set "add_eos_token": false in tokenizer_config.json of a local copy, model.path=FOLDER'
            )
        adds = not self.templated(chat) and not self.own_beginning(text, chat)
        return self.tokenizer(text, add_special_tokens=adds, **options)

    def own_beginning(self, text: str, chat: bool) -> str:
        """The special tokens that the tokenizer writes before a raw text, where the text begins with them itself; or
        ""."""
        before = self._added.before
        return before if not self.templated(chat) and text.startswith(before) else ""

    def encode(self, prompt: str, chat: bool, prefix: str = "") -> Tensor:
        """Token ids [n] of a prompt; in the model's chat template if `chat` and the model has one."""
        return torch.tensor(self.tokenise(self.render(prompt, chat, prefix), chat)["input_ids"])

    def templated(self, chat: bool) -> bool:
        """Whether a prompt is written in the chat template."""
        return chat and self.spec.chat_template == "auto" and self.tokenizer.chat_template is not None

    @cached_property
    def _added(self) -> Added:
        plain, whole = self.plain_tokens("a"), self.tokenizer("a")["input_ids"]
        begin = next((at for at in range(len(whole)) if whole[at : at + len(plain)] == plain), None)
        if begin is None:
            return Added("", "")
        before = "".join(self.tokenizer.convert_ids_to_tokens(whole[:begin]))
        return Added(before, self.tokenizer.decode(whole[begin + len(plain) :]))

    def special_tokens(self, text: str) -> list[int]:
        """The special tokens in a text, in their order, which no user's text should contain."""
        special = {token for token, added in self.tokenizer.added_tokens_decoder.items() if added.special}
        special |= {*self.tokenizer.all_special_ids}
        return [token for token in self.plain_tokens(text) if token in special]

    @property
    def template(self) -> str:
        """The chat template."""
        return template_of(self.tokenizer)

    @cached_property
    def newline(self) -> int:
        """The token of a line end: the last token of its encoding, as in LongBench's code."""
        return self.plain_tokens("\n")[-1]

    def plain_tokens(self, text: str) -> list[int]:
        """Token ids of a part of a text, without special tokens."""
        return self.tokenizer(text, add_special_tokens=False)["input_ids"]

    def decode(self, tokens: list[int]) -> str:
        return self.tokenizer.decode(tokens, skip_special_tokens=True)


@dataclass
class TextModel(Reader):
    """A model without its weights, for prompts and answers that another program computes."""

    spec: ModelSpec
    config: PretrainedConfig
    tokenizer: PreTrainedTokenizerBase
    source: str  # folder or hub id it came from
    stop_tokens: frozenset[int]

    # Only caches matter to growing frequencies, and the caches are the other program's.
    growth = None

    @property
    def dtype(self) -> torch.dtype:
        """The dtype in which kvbench itself would load the weights."""
        dtype = self.spec.resolve_dtype()
        return getattr(self.config, "dtype", None) or torch.float32 if dtype == "auto" else dtype

    @property
    def device(self) -> str:
        """Type of the device on which kvbench itself would load the weights."""
        return str(torch.device(self.spec.resolve_device()).type)


def stop_tokens(
    spec: ModelSpec, generation: GenerationConfig, tokenizer: PreTrainedTokenizerBase, config: PretrainedConfig
) -> frozenset[int]:
    """The tokens that end a text in a model's generation configuration, and model.stop_tokens; without those for which
    the model has no logit. Warns of a GGUF file that states no such token, for which transformers takes another
    model's."""
    eos = generation.eos_token_id
    ids = _listed(eos)
    if "eos_token_id" in (given := spec.load_args or {}) and _listed(given["eos_token_id"]) != ids:
        raise UserError(
            f"model.load_args: eos_token_id={given['eos_token_id']} ends no answer, since the generation configuration "
            f"of {spec.name} has {eos}: model.stop_tokens=[TOKEN] adds a token"
        )
    if not all(isinstance(token, int) and not isinstance(token, bool) for token in ids):
        raise UserError(
            f"the generation configuration of {spec.name} has eos_token_id={eos!r}: it must be an integer, a list of "
            "integers or null"
        )
    if ids and spec.path and is_gguf(spec.path) and tokenizer.eos_token_id is None:
        taken = ", ".join(f"{token} ({tokenizer.convert_ids_to_tokens(token)!r})" for token in ids)
        warn(
            f"{spec.name} states no token that ends an answer (tokenizer.ggml.eos_token_id): transformers takes {taken}"
            "; model.stop_tokens=[TOKEN] adds the model's own"
        )
    named = [_token(name, spec, tokenizer) for name in spec.stop_tokens or ()]
    logits = range(config.get_text_config().vocab_size)
    return frozenset(token for token in (*ids, *named) if token in logits)


def _listed(eos: Any) -> list[Any]:
    return [] if eos is None else eos if isinstance(eos, list) else [eos]


def _token(name: int | str, spec: ModelSpec, tokenizer: PreTrainedTokenizerBase) -> int:
    vocabulary: dict[str, int] = tokenizer.get_vocab()
    if name not in (vocabulary.values() if isinstance(name, int) else vocabulary):
        raise UserError(f"model.stop_tokens: {name!r} is not a token of {spec.name}")
    return name if isinstance(name, int) else vocabulary[name]
