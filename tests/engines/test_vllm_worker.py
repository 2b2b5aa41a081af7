"""vLLM's worker with a model that stands for it: what is set, stopped at and told."""

import json
import os
import subprocess
import sys
import types

import pytest

from kvbench.engines import vllm_worker, worker_loop
from kvbench.engines.vllm_worker import Worker, in_short

SETTINGS = {"model": "folder", "revision": None, "dtype": "float32", "kv_cache_dtype": "fp8", "context": 64}
SETTINGS |= {"top": 3, "cache_gib": 2, "threads": 1}
SETTINGS |= {"prefix_caching": False, "speculative": None, "attention_backend": None}


def place(token: int) -> dict:
    """The likeliest token and the one after it."""
    return {token: types.SimpleNamespace(logprob=-0.1), token + 1: types.SimpleNamespace(logprob=-2.5)}


class LLM:
    """Its likeliest next token is the one after the last."""

    def __init__(self, **options):
        self.options = options
        caches = [[types.SimpleNamespace(nbytes=100)], types.SimpleNamespace(nbytes=20)]
        worker = types.SimpleNamespace(model_runner=types.SimpleNamespace(kv_caches=caches))
        driver = types.SimpleNamespace(worker=worker)
        config = types.SimpleNamespace(dtype="torch.float32", get_vocab_size=lambda: 97)
        executor = types.SimpleNamespace(driver_worker=driver)
        self.llm_engine = types.SimpleNamespace(model_executor=executor, model_config=config)

    def generate(self, prompts, params, use_tqdm):
        ((_, ids),) = prompts[0].items()
        tokens, last = [], ids[-1]
        while len(tokens) < params["max_tokens"]:
            last += 1
            if last in params.get("stop_token_ids", ()) and len(tokens) < params["min_tokens"]:
                last += 50
            tokens.append(last)
            if last in params.get("stop_token_ids", ()):
                break
        made = types.SimpleNamespace(token_ids=tokens, logprobs=[place(token) for token in tokens])
        read = None
        if "prompt_logprobs" in params:  # the prompt's own token stands beside the likeliest ones
            own = [{token: types.SimpleNamespace(logprob=-4.0)} for token in ids]
            read = [None, *(at | place(before + 1) for before, at in zip(ids, own[1:], strict=False))]
        return [types.SimpleNamespace(outputs=[made], prompt_token_ids=ids, prompt_logprobs=read)]


@pytest.fixture
def worker(monkeypatch) -> Worker:
    lib = types.ModuleType("vllm")
    lib.__version__, lib.LLM, lib.SamplingParams = "0.32.0", LLM, lambda **rules: rules
    monkeypatch.setitem(sys.modules, "vllm", lib)
    for name in (*vllm_worker.SURROUNDINGS, "OMP_NUM_THREADS", "VLLM_CPU_KVCACHE_SPACE"):
        monkeypatch.setenv(name, "before")  # and put back as it was
    return Worker(SETTINGS)


def test_flags_reach_it_only_where_they_are_given(worker):
    assert worker.model.options["enable_prefix_caching"] is False
    assert not {"speculative_config", "attention_backend"} & worker.model.options.keys()
    guess = {"method": "ngram", "num_speculative_tokens": 4}
    options = Worker({**SETTINGS, "prefix_caching": True, "speculative": guess, "attention_backend": "X"}).model.options
    assert options["enable_prefix_caching"] and options["speculative_config"] == guess
    assert options["attention_backend"] == "X"


def test_it_tells_version_buffers_vocabulary_and_type(worker):
    told = {"version": "0.32.0", "reported_bytes": 120, "vocabulary": 97, "dtype": "float32"}
    assert worker.about() == told
    assert worker.model.options["kv_cache_dtype"] == "fp8" and worker.model.options["enable_prefix_caching"] is False
    assert os.environ["VLLM_CPU_KVCACHE_SPACE"] == "2" and os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] == "0"


@pytest.mark.parametrize(
    "stops, at_least_one, tokens",
    [([23], False, [21, 22]), ([21], False, []), ([21], True, [71, 72, 73]), ([], False, [21, 22, 23])],
)
def test_greedy_tokens_end_before_a_stop_token_or_at_the_limit(worker, stops, at_least_one, tokens):
    found = worker.complete([1, 20], 3, stops, at_least_one, 2)
    assert found["tokens"] == tokens and found["prompt_tokens"] == 2
    places = [*tokens, *([stops[0]] if len(tokens) < 3 else [])]  # the stop token's as well
    assert found["top"] == [{f"token_id:{token}": -0.1, f"token_id:{token + 1}": -2.5} for token in places]
    assert worker.complete([1, 20], 3, stops, at_least_one, 0)["top"] is None


def test_an_answer_is_followed_in_one_pass(worker):
    tops = worker.follow([1, 20], [5, 8], 2)["top"]
    assert [max(top, key=top.get) for top in tops] == ["token_id:21", "token_id:6"]  # behind 20, and behind 5


def test_given_tokens_are_scored_by_their_own_probability(worker):
    found = worker.score([1, 20], [22, 23], 2)  # behind 20 the second likeliest, and behind 22 the likeliest
    assert found["logprobs"] == [-2.5, -0.1] and found["read"] == 4 and len(found["top"]) == 2


def test_pydantics_manual_is_no_part_of_an_error():
    error = ValueError("1 validation error\n  dtype\n    For further information visit https://x\n")
    assert in_short(error) == "1 validation error; dtype"


def test_without_the_package_the_process_says_so_in_json():
    asked = {"input": json.dumps(SETTINGS) + "\n", "capture_output": True, "text": True}
    ran = subprocess.run([sys.executable, "-I", worker_loop.__file__, vllm_worker.__file__], **asked)
    assert json.loads(ran.stdout) == {"error": "No module named 'vllm'"}
