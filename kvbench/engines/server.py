"""A server's model, version, flags and abilities, found out before the first sample."""

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import PureWindowsPath
from typing import Any, NamedTuple, TypeVar

from kvbench.engines.base import Message
from kvbench.engines.http import AGAIN, Client, Refused, Unavailable, proxied
from kvbench.engines.server_answers import BadAnswer, answer_of, chat_answer_of, model_of
from kvbench.errors import UserError

Answer = TypeVar("Answer")

# vLLM reports the flags of its cache as labels of a metric.
CACHE_CONFIG = re.compile(r"^vllm:cache_config_info\{(.*)\}", re.MULTILINE)
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
# Greedy decoding without penalties: by default servers apply their own penalties (1.1 in llama-cpp-python) or the
# penalties of the model's generation configuration (vLLM).
GREEDY = {"repetition_penalty": 1.0, "repeat_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0}
# Tokens as ids in both directions, in vLLM's options.
AS_IDS = dict(
    add_special_tokens=False, skip_special_tokens=False, return_token_ids=True, return_tokens_as_token_ids=True
)
# The options of AS_IDS that concern the form of an answer.
OF_ANSWERS = frozenset({"skip_special_tokens", "return_token_ids", "return_tokens_as_token_ids"})
WORDS = "One two three."
PROMPTS, CHATS = "/completions", "/chat/completions"
LIKELIEST = {"temperature": 0, "top_p": 1}  # of the tokens, without sampling
BUSY = AGAIN - {500, 502}  # statuses about the server's moment, and not about a question's form
CACHE_FLAGS = ("cache_dtype", "block_size", "enable_prefix_caching", "sliding_window")


class Busy(UserError):
    """A server that stays too busy to answer."""


@dataclass(frozen=True)
class Server:
    """A server that answers for the model."""

    model: str  # the server's id of the model
    answers_as: str | None  # the model that its answers name
    takes_ids: bool  # whether it takes prompts as token ids; otherwise as text
    gives_ids: bool  # whether it answers with token ids and takes stop tokens; otherwise text
    extras: Mapping[str, Any]  # further fields of requests
    about: dict[str, Any]  # model, version and flags
    chats: bool = False  # whether it takes messages; otherwise prompts


class Abilities(NamedTuple):
    """The abilities of a server that the answer to a first question shows."""

    answers_as: str | None
    takes_ids: bool
    gives_ids: bool
    extras: Mapping[str, Any]


def find_server(client: Client, names: Sequence[str], ids: Sequence[int], chats: bool) -> Server:
    """Ask a server for its models and version, and for one token after WORDS, whose tokens are `ids`; with `chats`
    after a message of these words.

    Raises UserError if no such server answers, if it lacks the model, or if it refuses the question.
    """
    model = served(client, names)
    able = abilities(client, model, ids, chats)
    about = {"served_model": model, **version_of(client)}
    if "model_file" in about:  # llama-server, which by default reuses its cache of earlier prompts
        able = able._replace(extras={**able.extras, "cache_prompt": False})
    return Server(model, *able, about, chats)


def served(client: Client, names: Sequence[str]) -> str:
    """The first of `names` by which the server knows the model."""
    try:
        node = client.json("/models", retries=1)
    except Unavailable as error:
        way = proxied(client.base)
        raise UserError(
            f"engine.url={client.base}: no server with OpenAI's protocol answers there: {error}{way}"
        ) from error
    except Refused as error:
        if error.status in (401, 403):
            hint = "engine.key_env=NAME or engine.key_file=FILE has its key"
            raise UserError(f"engine.url={client.base}: {error}; {hint}") from error
        hint = f"; the address should end in /v1{proxied(client.base)}"
        raise UserError(f"engine.url={client.base}: {error}{hint}") from error
    models = node.get("data") if isinstance(node, dict) else None
    if not isinstance(models, list):
        raise UserError(f"engine.url={client.base}: its list of models does not follow OpenAI's protocol")
    ids = [model["id"] for model in models if isinstance(model, dict) and isinstance(model.get("id"), str)]
    for name in names:
        if name in ids:
            return name
    known = ", ".join(map(repr, ids[:5])) or "no model"
    raise UserError(
        f"engine.url={client.base} serves {known}, not {' or '.join(map(repr, names))}: if it is the same model under "
        "another name, set engine.served_model=NAME"
    )


def abilities(client: Client, model: str, ids: Sequence[int], chats: bool) -> Abilities:
    """The abilities that answers to a prompt of a few tokens show: as ids and as text, or as a message, with additions
    to the protocol and without them.

    Raises UserError if no form is answered, or if the server stays too busy to answer: an ability that it shows later
    would change the questions of one and the same setting.
    """
    path, read = (CHATS, chat_answer_of) if chats else (PROMPTS, answer_of)
    words: Mapping[str, Any] = {"messages": messages([Message("user", WORDS)])} if chats else {"prompt": WORDS}
    tokens: Mapping[str, Any] = {"prompt": ids}
    tried = [(words, GREEDY), (words, {})]
    if not chats:
        tried = [(tokens, AS_IDS | GREEDY), (tokens, GREEDY), (words, GREEDY), (tokens, {}), (words, {})]

    def shown(asked: Mapping[str, Any], more: Mapping[str, Any]) -> Abilities | None:
        payload = {"model": model, **asked, "max_tokens": 1, "temperature": 0, **more}
        answer = patiently(client, 1, lambda retries: client.json(path, payload, retries))
        completion = read(answer)
        if asked is words:
            return Abilities(model_of(answer), False, False, more)
        if completion.prompt_tokens != len(ids):
            return None
        return Abilities(model_of(answer), True, completion.tokens is not None, more)

    found: Abilities | None = None
    refused: Exception | None = None
    broken = []
    for form in tried:
        try:
            found = shown(*form)
        except (Refused, Unavailable, BadAnswer) as error:
            refused = error
            broken += [form] if isinstance(error, Unavailable) else []
        if found is not None:
            break
    if found is None:
        other = "" if chats else f"; engine.mode=chat asks {CHATS}"
        raise UserError(f"engine.url={client.base}: {path} of {model!r} does not answer: {refused}{other}")
    for form in broken:  # some servers break on a form that they do not know, and others were not quite up
        with suppress(Refused, Unavailable, BadAnswer):
            if better := shown(*form):
                return better
    return found


def patiently(client: Client, first: int, ask: Callable[[int | None], Answer]) -> Answer:
    """The answer to a question that a server may not know: `ask` gets the number of further attempts, `first` of them,
    and of a busy server as many as a sample's question has. Raises Busy if it stays so."""
    for retries in (first, None):
        try:
            return ask(retries)
        except Unavailable as error:
            if error.status not in BUSY:
                raise
            busy = error
    raise Busy(f"engine.url={client.base}: the server is too busy to answer a first question: {busy}") from busy


def messages(chat: Sequence[Message]) -> list[dict[str, str]]:
    return [message._asdict() for message in chat]


def version_of(client: Client) -> dict[str, Any]:
    """The server's version and flags, which vLLM and llama.cpp report; {} for other servers. A busy server
    is asked again: without them its records would be another setting's. Some gateways are busy at any address that they
    do not know."""
    root = Client(client.base.removesuffix("/v1"), client.secret, min(client.timeout, 10.0), client.retries)
    try:
        about: dict[str, Any] = {}
        if version := _text(_get(root, "/version"), "version"):
            about["version"] = version
        if build := _text(props := _get(root, "/props"), "build_info"):
            about["version"] = build
            about["model_file"] = PureWindowsPath(_text(props, "model_path")).name  # of any system
        if flags := cache_flags(_metrics(root)):
            about["told"] = flags
        return about
    finally:
        root.close()


def cache_flags(metrics: str) -> dict[str, str]:
    """The flags of the cache in vLLM's metrics; its engines have the same."""
    labels = next(iter(cache_labels(metrics)), {})
    return {name: labels[name] for name in CACHE_FLAGS if name in labels}


def cache_labels(metrics: str) -> list[dict[str, str]]:
    """The labels of the caches in vLLM's metrics, one for each engine; [] for metrics of another server."""
    return [dict(LABEL.findall(config)) for config in CACHE_CONFIG.findall(metrics)]


def _get(client: Client, path: str) -> object:
    try:
        return patiently(client, 0, lambda retries: client.json(path, retries=retries))
    except (Refused, Unavailable, Busy):
        return {}


def _metrics(client: Client) -> str:
    try:
        return patiently(client, 0, lambda retries: client.text("/metrics", retries))
    except (Refused, Unavailable, Busy):
        return ""


def _text(node: object, key: str) -> str:
    value = node.get(key) if isinstance(node, dict) else None
    return value if isinstance(value, str) else ""
