"""llama.cpp's worker with a model that stands for it: what is read, chosen, stopped at and told."""

import json
import os
import subprocess
import sys
import types

import numpy as np
import pytest

from kvbench.engines import llama_worker, worker_loop
from kvbench.engines.llama_worker import Worker

SETTINGS = {"model_file": "a.gguf", "context": 64, "threads": 1, "gpu_layers": 0, "flash_attention": True}
SETTINGS |= {"k": "q8_0", "v": "f16", "rotation": True, "swa_full": None}
VOCABULARY = 10


class Llama:
    """Its likeliest next token is the one after the last, and each other one is less likely by its distance."""

    def __init__(self, file, **options):
        self.options, self.read, self.ctx, self.model = options, [], self, self
        if options["type_v"] == 99:
            raise ValueError("Failed to create llama_context")

    metadata = {  # noqa: RUF012
        "general.architecture": "llama",
        "llama.block_count": "30",
        "llama.attention.head_count": "9",
        "llama.attention.head_count_kv": "[3, 3]",
        "llama.embedding_length": "576",
    }

    @property
    def n_tokens(self):
        return len(self.read)

    def n_vocab(self):
        return VOCABULARY

    def reset(self):
        self.read = []

    def eval(self, tokens):
        self.read += tokens


class Bindings(types.ModuleType):
    GGML_TYPE_F16, GGML_TYPE_Q8_0, GGML_TYPE_IQ4_NL = 1, 8, 99
    __version__ = "0.3.36"
    Llama = Llama

    def __init__(self):
        super().__init__("llama_cpp")
        self.llama_cpp = self
        self.llama_log_callback = lambda function: function

    def llama_log_set(self, callback, data):
        for text in (b"KV buffer size =   2.50 MiB\n", b"KV buffer size = 0.25 ", b"MiB\nV cache requires x\n"):
            callback(2, text, None)

    def llama_model_default_params(self):
        return types.SimpleNamespace(use_extra_bufts=True)

    def llama_model_get_vocab(self, model):
        return [b"tok%d" % token for token in range(VOCABULARY - 1)] + [b"\xff"]

    def llama_vocab_get_text(self, vocabulary, token):
        return vocabulary[token]

    def llama_get_logits_ith(self, model, place):
        likeliest = (model.read[-1] + 1) % VOCABULARY
        self.logits = np.array([-abs(token - likeliest) for token in range(VOCABULARY)], dtype=np.float32)
        if model.read[-1] == 7:
            self.logits[:] = np.nan
        return np.ctypeslib.as_ctypes(self.logits)


@pytest.fixture
def worker(monkeypatch) -> Worker:
    monkeypatch.setitem(sys.modules, "llama_cpp", Bindings())
    monkeypatch.setenv("LLAMA_ATTN_ROT_DISABLE", "1")  # whatever it was started with; put back afterwards
    # an array of ctypes stands for llama.cpp's pointer
    monkeypatch.setattr(np.ctypeslib, "as_array", lambda found, shape: np.frombuffer(found, dtype=np.float32))
    return Worker(SETTINGS)


def test_it_tells_version_buffers_and_vocabulary(worker):
    told = worker.about()
    assert told.pop("tokens") == [*(f"tok{token}" for token in range(VOCABULARY - 1)), "\ufffd"]
    assert told == {"version": "0.3.36", "reported_bytes": round(2.75 * 2**20), "vocabulary": VOCABULARY} | {
        "shape": {"num_hidden_layers": 30, "num_attention_heads": 9, "hidden_size": 576},
        "windows": False,
    }
    assert worker.model.options["type_k"] == 8 and worker.model.options["type_v"] == 1
    assert worker.model.options["swa_full"] is None and Worker({**SETTINGS, "swa_full": True}).model.options["swa_full"]
    assert worker.lib.llama_model_default_params().use_extra_bufts is False


def test_it_tells_whether_windowed_layers_have_a_cache_of_their_own(worker):
    worker.log.text += "llama_kv_cache_iswa: creating non-SWA KV cache, size = 8192 cells\n"
    assert worker.about()["windows"] is False
    worker.log.text += "llama_kv_cache_iswa: creating     SWA KV cache, size = 1024 cells\n"
    assert worker.about()["windows"] is True


def test_the_settings_decide_on_rotation_and_not_the_environment(worker):
    assert os.environ["LLAMA_ATTN_ROT_DISABLE"] == "0"
    Worker({**SETTINGS, "rotation": False})
    assert os.environ["LLAMA_ATTN_ROT_DISABLE"] == "1"


@pytest.mark.parametrize(
    "stops, at_least_one, tokens", [([6], False, [3, 4, 5]), ([3], False, []), ([3], True, [2]), ([], False, [3, 4])]
)
def test_greedy_tokens_end_before_a_stop_token_or_at_the_limit(worker, stops, at_least_one, tokens):
    limit = 9 if stops else 2
    found = worker.complete([1, 2], limit if not at_least_one else 1, stops, at_least_one, 2)
    assert found["tokens"] == tokens and found["prompt_tokens"] == 2
    places = len(tokens) + (bool(stops) and not at_least_one)  # the stop token's as well
    likeliest = [f"token_id:{token}" for token in (3, 4, 5, 6)]
    assert [max(top, key=top.get) for top in found["top"]] == likeliest[:places]
    assert all(len(top) == 2 for top in found["top"])


def test_the_likeliest_tokens_have_log_probabilities_of_the_whole_vocabulary(worker):
    (top,) = worker.follow([1, 2], [3], VOCABULARY)["top"]
    assert np.isclose(sum(np.exp(list(top.values()))), 1) and next(iter(top)) == "token_id:3"
    assert worker.follow([1], [5, 6], 1)["top"][1].keys() == {"token_id:6"}  # behind the given token, not its own


def test_given_tokens_are_scored_by_their_own_probability_behind_all_before_them(worker):
    found = worker.score([1, 2], [3, 9], VOCABULARY)
    assert found["logprobs"] == [found["top"][0]["token_id:3"], found["top"][1]["token_id:9"]]
    assert found["read"] == 4 and worker.model.read == [1, 2, 3]
    assert max(found["top"][1], key=found["top"][1].get) == "token_id:4"
    without = worker.score([1, 2], [3, 9], 0)
    assert without["logprobs"] == found["logprobs"] and without["top"] is None


def test_logits_that_are_not_finite_are_an_error(worker):
    with pytest.raises(ValueError, match="generated token 1 are NaN"):
        worker.complete([1, 6], 9, [], False, 0)


def test_a_type_that_it_lacks_and_one_that_it_refuses_are_told_in_its_words(worker):
    with pytest.raises(ValueError, match=r"llama\.cpp 0\.3\.36 has no type 'q9'"):
        Worker({**SETTINGS, "k": "q9"})
    with pytest.raises(ValueError, match="V cache requires x"):
        Worker({**SETTINGS, "v": "iq4_nl"})


def test_without_the_package_the_process_says_so_in_json():
    asked = {"input": json.dumps(SETTINGS) + "\n", "capture_output": True, "text": True}
    ran = subprocess.run([sys.executable, "-I", worker_loop.__file__, llama_worker.__file__], **asked)
    assert json.loads(ran.stdout) == {"error": "No module named 'llama_cpp'"}
