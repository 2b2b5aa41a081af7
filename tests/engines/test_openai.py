"""A server of OpenAI's protocol: what it is found to be, and mistakes in one line before a sample is made."""

import json

import pytest

from kvbench.engines import OpenAI
from kvbench.engines.base import Question
from kvbench.engines.http import Client
from kvbench.engines.server import AS_IDS, GREEDY, cache_flags, version_of
from kvbench.errors import UserError
from kvbench.models import ModelSpec, TextModel
from tests.support.fake_engine import MODEL, FakeEngine, Handler
from tests.support.servers import QuietHandler, serving


@pytest.fixture
def reader(embedded) -> TextModel:
    spec = ModelSpec("tiny", 512, hub_id=MODEL)
    return TextModel(spec, None, embedded.tokenizer, "", frozenset({2}))


def connected(engine: FakeEngine, reader: TextModel, **options) -> OpenAI:
    with engine.running() as url:
        client = OpenAI(url=url, **options)
        client.connect(reader)
    return client


def test_a_server_tells_its_model_version_and_flags(reader):
    found = connected(FakeEngine(), reader)
    assert found.server.takes_ids and found.server.gives_ids and found.server.extras == {**AS_IDS, **GREEDY}
    told = {"block_size": "16", "cache_dtype": "fp8"}
    assert found.about == {"served_model": MODEL, "version": "0.32.0", "told": told}
    assert found.label.startswith("openai 127.0.0.1:") and OpenAI(url="http://a/v1", label="x").label == "x"


@pytest.mark.parametrize("path", ["/home/me/models/a.gguf", r"C:\Users\me\models\a.gguf", "a.gguf"])
def test_a_llama_server_tells_its_build_and_the_name_of_its_file(path):
    """No folder: each record has what a server tells."""

    class Props(QuietHandler):
        def do_GET(self) -> None:
            told = json.dumps({"build_info": "b6000-abc", "model_path": path} if self.path == "/props" else {}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(told)))
            self.end_headers()
            self.wfile.write(told)

    with serving(Props) as address:
        assert version_of(Client(f"{address}/v1")) == {"version": "b6000-abc", "model_file": "a.gguf"}


def test_flags_that_a_server_does_not_tell_are_none():
    assert cache_flags('# HELP\nother{cache_dtype="x"} 1') == {}


def test_a_server_without_ids_is_asked_in_text(reader):
    found = connected(FakeEngine(ids=False), reader)
    assert not found.server.takes_ids and not found.server.gives_ids and found.server.extras == GREEDY


def test_a_server_of_the_bare_protocol_is_asked_in_it(reader):
    found = connected(FakeEngine(plain=True), reader)
    assert found.server.takes_ids and not found.server.gives_ids and found.server.extras == {}
    assert connected(FakeEngine(plain=True, ids=False), reader).server.takes_ids is False


@pytest.mark.parametrize("mode", ["completions", "chat"])
@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("kind", ["busy", "starting", "overloaded", "error", "reset", "truncated"])
def test_a_server_that_is_not_quite_up_is_asked_in_the_form_that_it_takes(reader, kind, times, mode):
    """Otherwise the same setting would be asked in text, or with the server's own penalties, by the hour."""
    calm = connected(FakeEngine(), reader, mode=mode).server
    found = connected(FakeEngine(lambda number, payload: kind if number < times else "well"), reader, mode=mode)
    assert found.server == calm and GREEDY.items() <= found.server.extras.items()


def test_a_server_that_stays_busy_is_one_line_and_not_asked_in_another_form(reader):
    engine = FakeEngine(lambda number, payload: "busy")
    with pytest.raises(UserError, match=r"too busy to answer a first question: status 429: too many requests \(4 att"):
        connected(engine, reader, retries=3)
    assert all(isinstance(one["prompt"], list) for one in engine.asked)


@pytest.mark.parametrize("path", ["/version", "/metrics"])
def test_what_a_busy_server_tells_is_asked_for_again(path, reader, monkeypatch):
    """Otherwise the same server would have other records after a busy moment."""
    answer, asked = Handler.do_GET, []

    def busy_at_first(handler: Handler) -> None:
        asked.append(handler.path)
        return handler.send(503, {}) if asked.count(path) < 3 and handler.path == path else answer(handler)

    calm = connected(FakeEngine(), reader).about
    monkeypatch.setattr(Handler, "do_GET", busy_at_first)
    assert connected(FakeEngine(), reader).about == calm


def test_a_gateway_that_is_busy_at_addresses_that_it_does_not_know_tells_nothing(reader, monkeypatch):
    answer = Handler.do_GET
    monkeypatch.setattr(Handler, "do_GET", lambda h: answer(h) if h.path == "/v1/models" else h.send(503, {}))
    assert connected(FakeEngine(), reader, flags="f16", retries=1).about == {"served_model": MODEL}


def test_a_server_that_breaks_on_a_form_is_asked_in_another_one(reader):
    engine = FakeEngine(lambda number, payload: "closed" if isinstance(payload["prompt"], list) else "well")
    assert connected(engine, reader).server.extras == GREEDY


@pytest.mark.parametrize(
    "change, options, message",
    [
        ({}, {"served_model": "org/large"}, "serves 'org/tiny', not 'org/large'"),
        ({"models": []}, {}, "serves no model, not 'org/tiny' or 'tiny'"),
        ({"models": ["a", "b"]}, {}, r"serves 'a', 'b', not .*engine.served_model=NAME"),
        ({"key": "right"}, {}, r"status 401.*engine.key_env=NAME or engine.key_file=FILE has its key"),
        ({"behave": lambda number, payload: "refused"}, {}, "does not answer: .*maximum context length"),
        ({"behave": lambda number, payload: "no choices"}, {}, "not an OpenAI completion"),
    ],
)
def test_a_server_that_cannot_answer_is_one_line(reader, change, options, message):
    engine = FakeEngine()
    for name, value in change.items():
        setattr(engine, name, value)
    with pytest.raises(UserError, match=message):
        connected(engine, reader, **options)


@pytest.mark.parametrize(
    ("url", "label"),
    [
        ("http://[::1]:8000/v1", "openai [::1]:8000"),
        ("http://[::1]/v1", "openai [::1]"),
        ("http://Host.example:/v1", "openai host.example"),
    ],
)
def test_a_server_is_named_by_its_address(url, label):
    assert OpenAI(url=url).label == label


def test_an_address_without_a_server_is_one_line(reader):
    with FakeEngine().running() as url:
        pass
    with pytest.raises(UserError, match="no server with OpenAI's protocol answers there"):
        OpenAI(url=url).connect(reader)


@pytest.mark.parametrize(
    "url, message",
    [
        (None, "engine.url is missing"),
        ("localhost:8000", "is not an address of a server"),
        ("ftp://host/v1", "is not an address of a server"),
        ("http://host:port/v1", "is not an address"),
        ("http://me:secret@host/v1", "has a user, a password or a query"),
        ("http://host/v1?key=secret", "has a user, a password or a query"),
    ],
)
def test_a_wrong_address_is_refused_and_shows_no_secret(url, message):
    with pytest.raises(UserError, match=message) as error:
        OpenAI(url=url)
    assert "secret" not in str(error.value)


def test_keys_come_from_the_environment_or_a_file(reader, monkeypatch, tmp_path):
    engine = FakeEngine()
    engine.key = "sk-1"
    monkeypatch.setenv("A_KEY", "sk-1")
    (tmp_path / "key").write_text("sk-1\n")
    assert connected(engine, reader, key_env="A_KEY").server
    assert connected(engine, reader, key_file=str(tmp_path / "key")).server
    (tmp_path / "empty").write_text("\n")
    for options, message in (
        ({"key_env": "NO_KEY"}, "engine.key_env=NO_KEY: the environment variable is not set"),
        ({"key_file": str(tmp_path / "none")}, "No such file"),
        ({"key_file": str(tmp_path / "empty")}, "the file is empty"),
        ({"key_env": "A_KEY", "key_file": "x"}, "exclude each other"),
    ):
        with pytest.raises(UserError, match=message):
            OpenAI(url="http://127.0.0.1:9/v1", **options).connect(reader)


def test_a_question_is_sent_with_its_ids_and_stop_rules(reader):
    engine = FakeEngine()
    asked = Question("a", [5, 6, 7], "x y z", 8, frozenset({2, 9}), at_least_one=True)
    with engine.running() as url:
        found = OpenAI(url=url)
        found.connect(reader)
        with found.session() as session:
            completion = session.complete(asked, 4)
            tops = session.follow(asked, completion.tokens, 4)
    payload, echo = engine.asked[-2:]
    assert payload["prompt"] == [5, 6, 7] and payload["stop_token_ids"] == [2, 9] and payload["min_tokens"] == 1
    assert payload["temperature"] == 0 and payload["max_tokens"] == 8 and payload["repetition_penalty"] == 1
    assert completion.prompt_tokens == 3 and len(completion.tokens) == len(completion.top) == 8
    assert echo["prompt"] == [5, 6, 7, *completion.tokens] and echo["echo"]
    assert [max(top, key=top.get) for top in tops] == [f"token_id:{token}" for token in completion.tokens]


def test_a_server_of_text_is_asked_to_stop_at_a_line_end(reader):
    engine = FakeEngine(ids=False)
    with engine.running() as url:
        found = OpenAI(url=url)
        found.connect(reader)
        with found.session() as session:
            session.complete(Question("a", [5], "x y z", 8, frozenset({9}), newline=True), 0)
            assert session.follow(Question("a", [5], "x", 8, frozenset()), [1], 4) is None
    assert engine.asked[-1]["repeat_penalty"] == 1  # llama-cpp-python's own choice is 1.1
    assert engine.asked[-1]["prompt"] == "x y z" and engine.asked[-1]["stop"] == ["\n"]
    assert "stop_token_ids" not in engine.asked[-1]
