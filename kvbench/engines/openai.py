"""Any server that speaks OpenAI's completions protocol: vLLM, llama.cpp, SGLang, OpenVINO Model Server and others."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field
from typing import Any, Literal, TypeVar
from urllib.parse import urlsplit

from kvbench.engines.base import Address, CannotAnswer, Completion, Engine, Gone, Question, Scored, Session, Top
from kvbench.engines.http import Client, Refused, Unavailable
from kvbench.engines.local_server import started
from kvbench.engines.questions import check_scored
from kvbench.engines.secrets import read_secret
from kvbench.engines.server import CHATS, LIKELIEST, OF_ANSWERS, PROMPTS, WORDS, Server, find_server, messages
from kvbench.engines.server_answers import answer_of, chat_answer_of, check_model, scored
from kvbench.errors import UserError
from kvbench.models import TextModel
from kvbench.utils.checked import NonNegative, Positive, PositiveNumber, checked
from kvbench.utils.extras import require

Read = TypeVar("Read")


@checked(prefix="engine.")
class OpenAI(Engine):
    """A server at `url`, which ends in the version of the protocol: http://127.0.0.1:8000/v1."""

    url: str | None = None
    mode: Literal["completions", "chat"] = "completions"  # chat: messages, in the server's chat template
    label: str | None = None  # None: host and port
    served_model: str | None = None  # the server's id of the model; None: the hub's id, or the name of its preset
    flags: str | None = None  # how the server was started, if the server does not report it
    command: str | None = None  # starts the server; {flags} stands for `flags`; None: the server is up
    key_env: str | None = None  # environment variable with the server's key
    key_file: str | None = None  # file with the server's key
    concurrency: Positive = 4
    timeout: PositiveNumber = 600.0
    retries: NonNegative = 6
    repeat: NonNegative = 3
    top: Positive = 20
    about: dict[str, Any] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        if not self.url:
            raise UserError("engine.url is missing: the address of a server, such as http://127.0.0.1:8000/v1")
        try:
            parts = urlsplit(self.url)
            _ = parts.port  # raises for one that is no number
        except ValueError as error:
            raise UserError(f"engine.url={self.url!r} is not an address: {error}") from error
        if parts.username or parts.password or parts.query or parts.fragment:
            raise UserError(
                "engine.url has a user, a password or a query, which every record would show: put the server's key "
                "into engine.key_env or engine.key_file"
            )
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UserError(f"engine.url={self.url!r} is not an address of a server, such as http://127.0.0.1:8000/v1")
        self.base = self.url.rstrip("/")
        self.named = self.label is not None
        self.label = self.label or self._label(parts.netloc.lower().rstrip(":"))

    def _label(self, place: str) -> str:
        """A server that kvbench starts is named by its flags, because the next server has the same address."""
        return f"openai {place}" if self.command is None or self.flags is None else f"openai {self.flags}"

    @property
    def parameters(self) -> dict[str, Any]:
        mode = {} if self.mode == "completions" else {"mode": self.mode}  # not in earlier records
        return {"engine": "openai", "flags": self.flags, **mode}

    @property
    def chats(self) -> bool:  # type: ignore[override]
        return self.mode == "chat"

    def connect(self, reader: TextModel) -> None:
        require("engine=openai", "httpx")
        self.secret = read_secret(self.key_env, self.key_file)
        self.words = reader.plain_tokens(WORDS)
        try:
            with self.up(), self.client() as client:
                self.server = find_server(client, self.names(reader), self.words, self.chats)
        except Gone as error:
            raise UserError(f"{self.label}: engine.command: {error}") from error
        self.about = self.server.about
        if "told" not in self.about and self.flags is None and not self.named:
            raise UserError(
                f"engine.url={self.url} does not report how its cache is stored, so that records of another cache at "
                "the same address would be taken for this server's: state its options as engine.flags='…', or name it "
                "by engine.label=NAME"
            )

    def cannot_score(self) -> str | None:
        """Why the server does not score a prompt of a few tokens; None if it does."""
        question = Question("", self.words[:1], "", 1, frozenset())
        try:
            with self.session() as session:
                check_scored(question, self.words[1:], session.score(question, self.words[1:], 1))
        except (CannotAnswer, Gone) as error:
            return f"engine.url={self.url} scores no prompt (echo with logprobs): {error}"
        return None

    def cannot_stand_beside(self, other: Engine) -> str | None:
        """Of two flags that one command line starts: their records would say that flags change nothing."""
        if not isinstance(other, OpenAI) or None in (self.command, other.command):
            return None
        if other.line != self.line or other.flags == self.flags:
            return None
        return (
            f"engine.command={self.command!r} starts the same server for engine.flags={self.flags} and "
            f"{other.flags}: write {{flags}} where they stand in the command"
        )

    def cannot_serve(self) -> str | None:
        if self.base.endswith("/v1"):
            return None
        return f"engine.url={self.url} does not end in /v1, where GuideLLM sends its requests"

    @contextmanager
    def served(self) -> Iterator[Address]:
        """The address for prompts as text, with the extras about how the server reads prompts."""
        extras = {name: value for name, value in self.server.extras.items() if name not in OF_ANSWERS}
        with self.up():
            yield Address(self.base, self.server.model, self.server.chats, extras, self.secret)

    def names(self, reader: TextModel) -> list[str]:
        """The names that the server may use for the model."""
        spec = reader.spec
        return [self.served_model] if self.served_model else [name for name in (spec.hub_id, spec.name) if name]

    @contextmanager
    def client(self) -> Iterator[Client]:
        client = Client(self.base, self.secret, self.timeout, self.retries)
        try:
            yield client
        finally:
            client.close()

    @contextmanager
    def session(self) -> Iterator[Session]:
        with self.up(), self.client() as client:
            yield Connection(client, self.server)

    @contextmanager
    def up(self) -> Iterator[None]:
        """The server answers within the block; kvbench starts it if engine.command is set. Raises Gone."""
        if self.command is None:
            yield
            return
        with self.client() as client, started(self.line, lambda: answers(client)):
            yield

    @property
    def line(self) -> str:
        """The command line that starts the server; "" for a server that is up."""
        return (self.command or "").replace("{flags}", self.flags or "")


def answers(client: Client, retries: int = 0) -> bool:
    """Whether a server answers, and has loaded its model."""
    try:
        client.json("/models", retries=retries)
    except (Refused, Unavailable) as error:
        return isinstance(error, Refused)
    return True


# Refusals that the next question gets, too: wrong address, or missing permission.
LASTING = frozenset({301, 302, 303, 307, 308, 401, 402, 403, 404, 405, 410})
IN_A_ROW = 3  # number of such refusals that ends a run


class Connection(Session):
    """A client of a connected server."""

    def __init__(self, client: Client, server: Server):
        self.client, self.server = client, server
        self.refused = 0  # number of questions in a row that were refused with a status of LASTING

    def complete(self, question: Question, top: int) -> Completion:
        if self.server.chats:
            return self.chat(question, top)
        sampling = self.sampling(question)
        payload = {**self.prompt(question, question.ids), "max_tokens": question.max_new_tokens, **sampling}
        if top:
            payload["logprobs"] = top
        if self.server.gives_ids:
            payload |= {"stop_token_ids": sorted(question.stops)}
            payload |= {"min_tokens": 1} if question.at_least_one else {}
        elif question.newline and not question.at_least_one:
            payload["stop"] = ["\n"]
        return self.ask(payload, answer_of)

    def chat(self, question: Question, top: int) -> Completion:
        if not question.messages:
            raise CannotAnswer("this prompt is not a chat: it is raw text, or includes the beginning of the answer")
        payload = {"model": self.server.model, "messages": messages(question.messages), **self.server.extras}
        payload |= {"max_tokens": question.max_new_tokens, **self.sampling(question)}
        if top:
            payload |= {"logprobs": True, "top_logprobs": top}
        if question.newline and not question.at_least_one:
            payload["stop"] = ["\n"]
        return self.ask(payload, chat_answer_of)

    def follow(self, question: Question, tokens: Sequence[int], top: int) -> Sequence[Top] | None:
        try:
            return self.score(question, tokens, top).top if tokens else None
        except CannotAnswer:
            return None

    def score(self, question: Question, tokens: Sequence[int], top: int) -> Scored:
        """Scores by `echo`, which gives the log-probabilities of a prompt: prompt and text are sent as one."""
        if not self.server.takes_ids:
            raise CannotAnswer("the server does not take token ids, so it may score other tokens")
        ids = [*question.ids, *tokens]
        payload = {**self.prompt(question, ids), "max_tokens": 1, "temperature": 0, "echo": True}
        payload["logprobs"] = max(top, 1)  # some servers read 0 as none
        return self.ask(payload, lambda node: scored(node, ids, len(question.ids)))

    def prompt(self, question: Question, ids: Sequence[int]) -> dict[str, Any]:
        prompt = [*ids] if self.server.takes_ids else question.text
        return {"model": self.server.model, "prompt": prompt, **self.server.extras}

    def sampling(self, question: Question) -> dict[str, Any]:
        """The request's options of sampling; the server draws with its own random numbers."""
        if (sampling := question.sampling) is None:
            return {**LIKELIEST}
        options: dict[str, Any] = {"temperature": sampling.temperature, "top_p": sampling.top_p, "seed": sampling.seed}
        # -1 means all tokens in vLLM, instead of the model's default top_k
        options |= {"top_k": sampling.top_k or (-1 if self.server.gives_ids else None)}
        return {name: value for name, value in options.items() if value is not None}

    def ask(self, payload: dict[str, Any], read: Callable[[object], Read]) -> Read:
        try:
            answer = self.client.json(CHATS if self.server.chats else PROMPTS, payload)
        except Refused as error:
            self.refused = self.refused + 1 if error.status in LASTING else 0
            if self.refused >= IN_A_ROW:
                raise Gone(f"{self.client.base} refused {self.refused} questions in a row: {error}") from error
            raise CannotAnswer(str(error)) from error
        except Unavailable as error:
            if not self.alive():
                raise Gone(f"{self.client.base} does not answer any more: {error}") from error
            raise CannotAnswer(str(error)) from error
        self.refused = 0
        try:
            result = read(answer)
            check_model(answer, self.server.answers_as)
        except CannotAnswer as error:
            raise CannotAnswer(self.client.clean(str(error))) from error
        return result

    def alive(self) -> bool:
        """Whether the server still answers at all."""
        return answers(self.client, retries=1)
