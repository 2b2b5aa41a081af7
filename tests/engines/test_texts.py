"""Perplexity of a text under engines: the tokens that kvbench's caches are scored by, or no number at all."""

import math

import pytest

from kvbench.benchmarks import Sample
from kvbench.engines.base import Scored
from kvbench.engines.questions import question
from kvbench.engines.texts import measures, repeated, text_of
from kvbench.errors import Incomplete, UserError
from kvbench.evaluation.text_measures import text_measures
from kvbench.records import load
from tests.support.fake_engine import MODEL, FakeEngine
from tests.support.runs import reported, run

SENTENCE = "The harbour lies in the north, and the ferry leaves at nine. "
WINDOWS = ["benchmark=text", "benchmark.length=40", "benchmark.scored=9", "benchmark.windows=3"]


@pytest.fixture
def written(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(SENTENCE * 30)
    return path


@pytest.fixture
def settings(tiny_folder, tmp_path, written) -> list[str]:
    """Of a run over three windows, but what answers."""
    model = [f"model.path={tiny_folder}", "model.shape=null", "model.max_length=4096"]
    return [*model, *WINDOWS, f"benchmark.path={written}", f"output_dir={tmp_path / 'runs'}"]


def served(settings: list[str], engine: FakeEngine, *more: str):
    """The folder of a run against a server."""
    own = [f"engine.served_model={MODEL}", "engine.label=one", "engine.concurrency=1", "engine.retries=0", *more]
    with engine.running() as url:
        return run(*settings, "engine=openai", f"engine.url={url}", *own)


def test_all_tokens_behind_the_context_but_the_first_are_scored(embedded):
    sample = Sample("a", SENTENCE, (), 9, continuation="The ferry returns at noon.", chat=False)
    asked = question(embedded, sample)
    text = text_of(embedded, sample, asked)
    ids = embedded.plain_tokens(sample.continuation)
    assert text.tokens == ids[1:] and text.question.ids == [*asked.ids, ids[0]]
    logs = [-0.25 * place for place in range(len(ids) - 1)]
    found = measures(embedded, text, Scored(logs), None)
    size = len(embedded.tokenizer.decode(ids[1:]).encode())
    assert found == {"nll": -sum(logs) / len(logs), "bits_per_byte": pytest.approx(-sum(logs) / math.log(2) / size)}


@pytest.mark.parametrize("text", ["🦜 sings.", "鮭 swims.", "a\ufffdb", "The ferry."])
def test_of_a_character_that_the_unscored_token_begins_only_the_other_bytes_count(text, embedded):
    """Decoded by itself, each of these bytes is a replacement character of three."""
    first, *rest = embedded.plain_tokens(text)
    words = embedded.tokenizer.convert_ids_to_tokens([first])
    found = text_measures(embedded, rest, -math.log(2))
    assert 1 / found["bits_per_byte"] == pytest.approx(len(text.encode()) - len(words[0]))  # a letter for each byte


def test_a_repeat_compares_log_probabilities():
    first = Scored([-1.0, -2.0, -3.0, -4.0])
    assert repeated(first, first) == {"equal": True, "agreed": 1}
    assert repeated(first, Scored([-1.0, -2.5, -3.0, -4.0])) == {"equal": False, "agreed": 0.25}


def test_a_server_reads_and_scores_what_kvbench_does(settings):
    folder = reported(*settings, "method=full")
    engine = FakeEngine()
    assert served(settings, engine) == folder
    records = load(folder)
    full, one = (records[records["setting"] == name].set_index("sample") for name in ("full", "one"))
    assert one["prompt_tokens"].to_dict() == full["prompt_tokens"].to_dict() and len(one) == 3
    found = one["distance"].iloc[0]
    assert found["nll"] == pytest.approx(0.1) and (found["top1"], found["kl_at_least"]) == (1, 0)
    ratio = full["distance"].iloc[0]["nll"] / full["distance"].iloc[0]["bits_per_byte"]
    assert found["nll"] / found["bits_per_byte"] == pytest.approx(ratio)  # tokens and bytes of the same text
    scored = [payload for payload in engine.asked if payload.get("echo")][1:]  # the first finds out whether it can
    assert len(scored) == 6 and all(len(payload["prompt"]) >= 40 + 9 for payload in scored)  # three are asked twice
    assert "perplexity" in (folder / "table.md").read_text()
    assert one["repeated"].map(lambda told: told is not None and told["equal"]).sum() == 3


@pytest.mark.parametrize(
    "kind, message",
    [
        ("no logprobs", "the answer has no log-probabilities of the prompt's tokens"),
        ("few scores", "log-probabilities of 2 tokens, but the prompt has "),
        ("many scores", "tokens, but the prompt has "),
        ("unscored token", "gives nan as log-probability of token "),
        ("no logarithm", "gives 0.5 as log-probability of token 0"),
        ("other tokens", "is 'token_id:0' in the answer, but token_id:"),
        ("refused", "maximum context length is 64 tokens"),
        ("error", "out of blocks"),
        ("other count", "counts 7 tokens in prompt and text"),
    ],
)
def test_a_server_that_scores_no_text_is_one_line_before_samples_are_made(kind, message, settings, tmp_path):
    engine = FakeEngine(lambda number, payload: kind if payload.get("echo") else "well")
    with pytest.raises(UserError, match=message) as error:
        served(settings, engine)
    assert "scores no prompt (echo with logprobs)" in str(error.value) and "\n" not in str(error.value)
    assert not list((tmp_path / "runs").rglob("*"))


def test_a_server_that_takes_text_alone_scores_none(settings):
    with pytest.raises(UserError, match="the server does not take token ids, so it may score other tokens"):
        served(settings, FakeEngine(ids=False))


@pytest.mark.heavy
@pytest.mark.parametrize("kind", ["few scores", "unscored token", "other tokens"])
def test_a_window_that_is_scored_otherwise_has_no_record(kind, settings):
    seen: list = []

    def behave(number: int, payload: dict) -> str:
        seen.extend([payload["prompt"]] if payload.get("echo") and len(payload["prompt"]) > 9 else [])
        return kind if seen and payload["prompt"] == seen[0] else "well"

    with pytest.raises(Incomplete, match=r"1 record could not be made.*token-0"):
        served(settings, FakeEngine(behave), "engine.repeat=0")


def test_a_worker_scores_under_each_of_its_types(settings, environment, gguf):
    own = ["engine=llama_cpp", f"engine.python={environment()}", f"engine.model_file={gguf}"]
    records = load(run(*settings, *own, "engine.k=[f16,q8_0]"))
    found = records["distance"]
    assert len(records) == 6 and found.map(lambda one: 0.5 <= one["nll"] <= 1.1 and one["top1"] == 1).all()
    assert records["tokens"].map(len).eq(0).all() and records["top"].notna().sum() == 3  # the first setting's


def test_eviction_after_the_prompt_has_no_score(settings, environment, gguf):
    own = ["engine=openvino", f"engine.python={environment()}", f"engine.model_file={gguf}"]
    with pytest.raises(UserError, match=r"engine\.max_cache_size=256 evicts only after a prompt"):
        run(*settings, *own, "engine.max_cache_size=256")
