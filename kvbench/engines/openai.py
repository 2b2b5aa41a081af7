"""Any server that speaks OpenAI's completions protocol: vLLM, llama.cpp, SGLang, OpenVINO Model Server and others."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field
from typing import Any, TypeVar
from urllib.parse import urlsplit

from kvbench.engines.base import CannotAnswer, Completion, Engine, Gone, Question, Scored, Session, Top
from kvbench.engines.http import Client, Refused, Unavailable
from kvbench.engines.questions import check_scored
from kvbench.engines.secrets import read_secret
from kvbench.engines.server import WORDS, Server, find_server
from kvbench.engines.server_answers import answer_of, check_model, scored
from kvbench.errors import UserError
from kvbench.models import TextModel
from kvbench.utils.checked import NonNegative, Positive, PositiveNumber, checked
from kvbench.utils.extras import require

Read = TypeVar("Read")


@checked(prefix="engine.")
class OpenAI(Engine):
    """A server at `url`, which ends in the version of the protocol: http://127.0.0.1:8000/v1."""

    url: str | None = None
    label: str | None = None  # what tables call it; None: host and port
    served_model: str | None = None  # the server's id of the model; None: the hub's id, or the name of its preset
    flags: str | None = None  # how the server was started, where it does not say so itself
    key_env: str | None = None  # environment variable with the server's key
    key_file: str | None = None  # or a file
    concurrency: Positive = 4
    timeout: PositiveNumber = 600.0
    retries: NonNegative = 6
    repeat: NonNegative = 2
    top: Positive = 20
    about: dict[str, Any] = field(init=False, default_factory=dict)
    server: Server | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        if not self.url:
            raise UserError("engine.url is missing: the address of a server, such as http://127.0.0.1:8000/v1")
        try:
            parts = urlsplit(self.url)
            port = parts.port
        except ValueError as error:
            raise UserError(f"engine.url={self.url!r} is no address: {error}") from error
        if parts.username or parts.password or parts.query or parts.fragment:
            raise UserError(
                "engine.url has a user, a password or a query, which every record would show: the key of a server "
                "comes from engine.key_env or engine.key_file"
            )
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UserError(f"engine.url={self.url!r} is no address of a server, such as http://127.0.0.1:8000/v1")
        self.label = self.label or f"openai {parts.hostname}" + (f":{port}" if port else "")

    @property
    def parameters(self) -> dict[str, Any]:
        return {"engine": "openai", "flags": self.flags}

    def connect(self, reader: TextModel) -> None:
        require("engine=openai", "httpx")
        self.secret = read_secret(self.key_env, self.key_file)
        with self.client() as client:
            self.words = reader.plain_tokens(WORDS)
            self.server = find_server(client, self.names(reader), self.words)
        self.about = self.server.about

    def cannot_score(self) -> str | None:
        """Found out with a prompt of a few tokens."""
        asked = Question("", self.words[:1], "", 1, frozenset())
        try:
            with self.session() as session:
                check_scored(asked, self.words[1:], session.score(asked, self.words[1:], 1))
        except (CannotAnswer, Gone) as error:
            return f"engine.url={self.url} scores no prompt (echo with logprobs): {error}"
        return None

    def names(self, reader: TextModel) -> list[str]:
        """What the server may call the model."""
        spec = reader.spec
        return [self.served_model] if self.served_model else [name for name in (spec.hub_id, spec.name) if name]

    @contextmanager
    def client(self) -> Iterator[Client]:
        assert self.url, "checked when it was built"
        client = Client(self.url.rstrip("/"), self.secret, self.timeout, self.retries)
        try:
            yield client
        finally:
            client.close()

    @contextmanager
    def session(self) -> Iterator[Session]:
        with self.client() as client:
            assert self.server is not None, "a session follows `connect`"
            yield Connection(client, self.server)


class Connection(Session):
    """A client of a server whose abilities are known."""

    def __init__(self, client: Client, server: Server):
        self.client, self.server = client, server

    def complete(self, question: Question, top: int) -> Completion:
        payload = {**self.prompt(question, question.ids), "max_tokens": question.max_new_tokens, **self.drawn(question)}
        if top:
            payload["logprobs"] = top
        if self.server.gives_ids:
            payload |= {"stop_token_ids": sorted(question.stops)}
            payload |= {"min_tokens": 1} if question.at_least_one else {}
        elif question.newline and not question.at_least_one:
            payload["stop"] = ["\n"]
        return self.asked(payload, answer_of)

    def follow(self, question: Question, tokens: Sequence[int], top: int) -> Sequence[Top] | None:
        try:
            return self.score(question, tokens, top).top if tokens else None
        except CannotAnswer:
            return None

    def score(self, question: Question, tokens: Sequence[int], top: int) -> Scored:
        """By `echo`, which has the log-probabilities of a prompt: here that of prompt and text."""
        if not self.server.takes_ids:
            raise CannotAnswer("it takes no token ids, so it may score other tokens")
        ids = [*question.ids, *tokens]
        payload = {**self.prompt(question, ids), "max_tokens": 1, "temperature": 0, "echo": True}
        payload["logprobs"] = max(top, 1)  # some servers take 0 for none
        return self.asked(payload, lambda node: scored(node, ids, len(question.ids)))

    def prompt(self, question: Question, ids: Sequence[int]) -> dict[str, Any]:
        prompt = [*ids] if self.server.takes_ids else question.text
        return {"model": self.server.model, "prompt": prompt, **self.server.extras}

    def drawn(self, question: Question) -> dict[str, Any]:
        """How tokens are chosen. The server draws with random numbers of its own."""
        how = question.sampling
        if how is None:
            return {"temperature": 0, "top_p": 1}
        top_k = how.top_k or (-1 if self.server.gives_ids else None)  # -1: vLLM's word for all, in place of the model's
        found = {"temperature": how.temperature, "top_p": how.top_p, "seed": how.seed, "top_k": top_k}
        return {name: value for name, value in found.items() if value is not None}

    def asked(self, payload: dict[str, Any], read: Callable[[object], Read]) -> Read:
        try:
            answer = self.client.json("/completions", payload)
        except Refused as error:
            raise CannotAnswer(str(error)) from error
        except Unavailable as error:
            if not self.alive():
                raise Gone(f"{self.client.base} does not answer any more: {error}") from error
            raise CannotAnswer(str(error)) from error
        found = read(answer)
        check_model(answer, self.server.answers_as)
        return found

    def alive(self) -> bool:
        """Whether the server still answers anything."""
        try:
            self.client.json("/models", retries=1)
        except Refused:
            return True
        except Unavailable:
            return False
        return True
