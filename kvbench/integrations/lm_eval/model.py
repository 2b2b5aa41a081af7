"""kvbench's models in lm-evaluation-harness: contexts are compressed, answers generated or scored from the caches."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from lm_eval.api.registry import register_model
from lm_eval.models.huggingface import HFLM
from lm_eval.models.utils_hf import stop_sequences_criteria
from torch import Tensor
from tqdm import tqdm
from transformers import AutoConfig

from kvbench.cache.base import StoredLayer
from kvbench.configuration import configured
from kvbench.errors import UserError
from kvbench.evaluation.context_frame import NO_TEMPLATE
from kvbench.evaluation.decode import batched, generate, read_all
from kvbench.evaluation.prefill_passes import Compressed, SharedPass, num_layers
from kvbench.evaluation.settings import is_full, settings_of
from kvbench.integrations.one_setting import METHOD_KEYS, check_read, one_setting
from kvbench.models import load
from kvbench.prefill import ContextFrame
from kvbench.utils.text import first_line

# Arguments of lm-eval's Hugging Face model that this model takes, too.
HARNESS = (
    "add_bos_token chat_template_args enable_thinking max_length prefix_token_id think_end_token truncation".split()
)
# Generation options that change nothing in greedy decoding.
IDLE = {"attention_mask", "do_sample", "temperature", "top_k", "top_p", "min_p"}
KEYS = (*METHOD_KEYS, "ratio", "budget", "model")  # of kvbench's configuration, those that have an effect here


@register_model("kvbench")
class KVBenchLM(HFLM):
    """lm-eval's Hugging Face model with kvbench's caches: `--model_args method=snapkv,ratio=0.2`.

    method, ratio, budget   one setting, as on kvbench's command line; method=full is the model itself.
    model                   a model of kvbench; or `pretrained`, a folder or hub id.
    KEY=VALUE               any other key of the method or model: method.snapkv.scoring.window=16, press=KnormPress, …

    Tokens, chat templates, stops and windows are lm-eval's own. The context is compressed with the question in it;
    answers are generated or scored from the compressed caches. If answers are scored, the context's last token is not
    compressed but read through the caches, so that no token of an answer is predicted from evicted tokens. Decoding is
    greedy, one context at a time.
    """

    def __init__(
        self,
        method: str = "full",
        ratio: float | None = None,
        budget: int | None = None,
        model: str = "smollm2-135m",
        pretrained: str | None = None,
        dtype: str = "auto",
        device: str | None = None,
        batch_size: int | str = 1,
        max_batch_size: int | None = None,
        trust_remote_code: bool = False,
        **more: Any,
    ):
        if str(batch_size) != "1":
            raise UserError(f"batch_size={batch_size}: kvbench compresses one context at a time, batch_size=1")
        if trust_remote_code:
            raise UserError("trust_remote_code=True: kvbench runs no code from a model's repository")
        harness = {key: more.pop(key) for key in HARNESS if key in more}
        available = torch.cuda.is_available() or "cuda" not in str(device)  # lm-eval's default is a GPU
        request = {"method": method, "model": model, "ratio": ratio, "budget": budget, "model.dtype": dtype}
        options = request | {"model.device": (available and device) or "auto"} | more
        overrides = [f"{key}={rendered(value)}" for key, value in options.items()]
        check_read(overrides, KEYS, "lm-eval")
        cfg = configured(overrides)
        self.setting = one_setting(settings_of(cfg), "lm-eval")
        self.loaded = load(replace(cfg.model, **elsewhere(pretrained)) if pretrained else cfg.model)
        super().__init__(
            pretrained=self.loaded.model,
            tokenizer=self.loaded.tokenizer,
            backend="causal",
            batch_size=1,
            **{"max_length": self.loaded.spec.max_length} | harness,
        )
        self.pretrained = self.loaded.source
        self.ratios: list[dict[str, Any]] = []  # of each context

    def _model_generate(self, context: Tensor, max_length: int, stop: list[str], **options: Any) -> Tensor:
        """The ids [1, n] of a context and of the answer after it, which ends at one of the texts `stop`."""
        for key, value in options.items():
            if key not in IDLE or (key == "do_sample" and value):
                raise UserError(f"{key}={value}: kvbench decodes greedily")
        compressed = self._compress(context[0], max_length - context.shape[1])
        criteria = stop_sequences_criteria(self.tokenizer, stop, 0, 1)
        output = generate(
            self.loaded.model,
            compressed.caches,
            compressed.logits,
            max_length - context.shape[1],
            self.loaded.stop_tokens,
            until=lambda tokens: bool(criteria(torch.tensor([tokens]), None).all()),
        )
        if output.not_finite is not None:
            where = f"{self.setting.label}, generated token {output.not_finite}"
            raise UserError(f"{where}: its logits are NaN or infinite")
        self._count(compressed)
        return torch.cat([context, context.new_tensor([output.tokens])], dim=1)

    def loglikelihood_rolling(self, requests: list[Any], disable_tqdm: bool = False) -> list[float]:
        """Refused unless nothing is compressed: each token of a text would be scored before it could be compressed."""
        if not is_full(self.setting):
            raise UserError(
                f"{self.setting.label} cannot run tasks with rolling log-likelihood (perplexity), "
                "which have no context to compress: only method=full can"
            )
        return super().loglikelihood_rolling(requests, disable_tqdm)

    def _loglikelihood_tokens(
        self,
        requests: list[tuple[Any, list[int], list[int]]],
        disable_tqdm: bool = False,
        override_bs: int | None = None,
    ) -> list[tuple[float, bool]]:
        """For each (texts, context ids, continuation ids): log p(continuation), and whether it is greedy.

        Continuations of one context share its prefill and compression. The context's last token is held back and read
        through the compressed caches, so that they predict the first token of a continuation, too.
        """
        groups: dict[tuple[int, ...], list[int]] = {}
        for index, (_, tokens, continuation) in enumerate(requests):
            groups.setdefault(self._fitted(tokens, continuation), []).append(index)
        answers: list[Any] = [None] * len(requests)
        with tqdm(total=len(requests), disable=disable_tqdm, desc="Running loglikelihood requests") as bar:
            for context, members in groups.items():
                last = context[1:][-1:]  # a context of one token has nothing to compress without it
                longest = max(len(requests[index][2]) for index in members)
                compressed = self._compress(torch.tensor(context[: len(context) - len(last)]), len(last) + longest)
                for index, caches in zip(members, compressed.copies(len(members)), strict=True):
                    texts, _, continuation = requests[index]
                    answers[index] = self._score(compressed.logits, caches, last, continuation)
                    if texts is not None:
                        self.cache_hook.add_partial("loglikelihood", texts, answers[index])
                    bar.update(1)
                self._count(compressed)
        return answers

    def _fitted(self, context: Sequence[int], continuation: Sequence[int]) -> tuple[int, ...]:
        """The end of the context that fits the model with its continuation, whose last token is never read."""
        room = self.max_length + 1 - len(continuation)
        if room < 1:
            raise UserError(f"a continuation of {len(continuation)} tokens exceeds max_length={self.max_length}")
        return tuple(context[-room:])

    def _score(
        self, logits: Tensor, caches: list[StoredLayer], last: Sequence[int], continuation: Sequence[int]
    ) -> tuple[float, bool]:
        """Log-probability of a continuation after the caches and the tokens `last`, and whether it is greedy.

        logits [vocab_size] predict its first token if `last` is empty.
        """
        ids = torch.tensor(continuation, device=logits.device)
        rows = logits[None][len(last) :]  # last is one token or none
        unread = torch.tensor([*last, *continuation[:-1]], device=logits.device)
        if len(unread):
            rows = torch.cat([rows, read_all(self.loaded.model, batched([caches]), unread)[0]])
        chosen = rows.log_softmax(dim=-1).gather(1, ids[:, None])
        return float(chosen.sum()), bool((rows.argmax(dim=-1) == ids).all())

    def _compress(self, ids: Tensor, new_tokens: int) -> Compressed:
        """The compressed caches of a context [n], after which at most `new_tokens` will be read or generated."""
        model, method, layers = self.loaded.model, self.setting.method, num_layers(self.loaded.model, len(ids))
        budget = self.setting.budget_at(len(ids), layers, new_tokens)
        plan = method.plan(len(ids), layers, budget)
        return SharedPass(model, ids, plan, method.needs, self._frame).compress(method, budget)

    def _frame(self) -> ContextFrame:
        """The frame of any text: where a chat template in it ends is unknown."""
        plain_tokens = self.loaded.plain_tokens
        return ContextFrame(suffix=tuple(plain_tokens(NO_TEMPLATE)), encode=plain_tokens)

    def _count(self, compressed: Compressed) -> None:
        """Note the context's reserve ratio, after decoding."""
        self.ratios.append(compressed.ratio(compressed.caches).fields(compressed.window_bytes))

    def get_model_info(self) -> dict[str, Any]:
        """For lm-eval's results: the model, the setting, and means of the ratios that it kept."""
        entries: dict[str, Any] = {"kvbench_setting": self.setting.label, "kvbench_parameters": self.setting.parameters}
        if self.ratios:
            entries |= {f"kvbench_{name}": fmean(ratio[name] for ratio in self.ratios) for name in ("r", "r_bytes")}
        return super().get_model_info() | entries


def rendered(value: object) -> str:
    """A value in the grammar of Hydra's command line."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {rendered(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(rendered, value)) + "]"
    return "null" if value is None else str(value)


def elsewhere(source: str) -> dict[str, Any]:
    """The fields of a ModelSpec for a folder or a hub id."""
    try:
        config = AutoConfig.from_pretrained(source, trust_remote_code=False).get_text_config()
    except (OSError, ValueError) as error:
        raise UserError(f"pretrained={source}: {first_line(error)}") from error
    local = Path(source).is_dir()
    return {
        "name": source,
        "path": source if local else None,
        "hub_id": None if local else source,
        "embedded": None,
        "shape": None,
        "parameters": None,
        "revision": "main",
        "max_length": config.max_position_embeddings,
        "chat_template": "auto",
    }
