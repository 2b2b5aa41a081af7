"""OpenVINO's worker with a pipeline that stands for it: what is set, warmed up, stopped at and told."""

import json
import subprocess
import sys
import types
from enum import Enum
from typing import ClassVar

import pytest

from kvbench.engines import openvino_worker, worker_loop
from kvbench.engines.openvino_worker import Worker, in_short

SETTINGS = {
    **{"model_file": "a.gguf", "context": 100, "threads": 1, "device": "CPU", "compute": "f32", "precision": "u8"},
    **{"max_cache_size": None, "aggregation": "SUM", "start_size": 32, "recent_size": 32, "snapkv_window": 8},
    **{"rotation": False, "prefix_caching": False, "kvcrush": None, "kvcrush_anchor": "MEAN", "sparse_prefill": None},
    **{"sparse_dense": 100, "sparse_start": 128, "sparse_recent": 1920, "sparse_threshold": 0.8},
}
Status = Enum("Status", ["FINISHED", "IGNORED"])


class Pipeline:
    """Its next token is the one after the last; under the type u3 a step fails, as types do that it cannot compute."""

    made: ClassVar[list] = []

    def __init__(self, file, scheduler, device, properties):
        self.scheduler, self.properties, self.waiting, self.read = scheduler, properties, [], []
        Pipeline.made.append(self)

    def add_request(self, number, ids, rules):
        handle = types.SimpleNamespace(tokens=[], rules=rules, ids=ids[0], last=ids[0][-1])
        handle.get_status = lambda: Status.IGNORED if handle.last == 66 else Status.FINISHED
        handle.read_all = lambda: [types.SimpleNamespace(generated_ids=handle.tokens, generated_log_probs=handle.logs)]
        self.waiting.append(handle)
        self.read.append(list(ids[0]))
        return handle

    def has_non_finished_requests(self):
        return bool(self.waiting)

    def step(self):
        handle = self.waiting[0]
        if self.properties.get("KV_CACHE_PRECISION") == "u3" or handle.last == 13:
            raise RuntimeError(
                "Exception from src/core.cpp:117:\nCheck 'x' failed at /home/a/b.cpp:3:\nno such thing\n"
            )
        stops = handle.rules.get("stop_token_ids", ())
        for place in range(handle.rules["max_new_tokens"]):
            token = handle.last + 1 + place
            if token in stops and place < handle.rules.get("min_new_tokens", 0):
                token += 50
            handle.tokens.append(token)
            if token in stops:
                break
        handle.logs = [-token / 100 for token in handle.tokens]
        if handle.rules.get("echo"):  # the prompt comes before them; its first token has a number that is none
            handle.tokens[:0], handle.logs[:0] = handle.ids, [1.0, *(-token / 10 for token in handle.ids[1:])]
        self.waiting.clear()

    def get_metrics(self):
        return types.SimpleNamespace(kv_cache_size_in_bytes=5 * 32 * 7 if self.read else 0)

    def get_tokenizer(self):
        return types.SimpleNamespace(get_vocab=lambda: {b"a": 0, b"b": 2})


@pytest.fixture
def made(monkeypatch):
    """A worker under settings that differ from SETTINGS."""
    lib = types.ModuleType("openvino_genai")
    lib.__version__, lib.ContinuousBatchingPipeline, lib.GenerationStatus = "2026.4.1.0-9-ab", Pipeline, Status
    lib.SchedulerConfig, lib.CacheEvictionConfig = types.SimpleNamespace, lambda **fields: fields
    lib.AggregationMode = types.SimpleNamespace(SUM="sum")
    lib.SparseAttentionConfig, lib.SparseAttentionMode = lambda **fields: fields, types.SimpleNamespace(TRISHAPE="tri")
    lib.KVCrushConfig, lib.KVCrushAnchorPointMode = lambda *fields: fields, types.SimpleNamespace(MEAN="mean")
    lib.GenerationConfig = lambda **fields: fields
    openvino = types.ModuleType("openvino")
    openvino.__version__, openvino.Tensor = "2026.4.1-2-c", lambda array: array.tolist()
    monkeypatch.setitem(sys.modules, "openvino_genai", lib)
    monkeypatch.setitem(sys.modules, "openvino", openvino)
    monkeypatch.setattr(Pipeline, "made", [])
    return lambda **changed: Worker({**SETTINGS, **changed})


def test_it_tells_versions_and_the_bytes_of_a_token_after_a_first_question(made):
    told = made().about()
    assert told == {
        **{"version": "2026.4.1", "genai": "2026.4.1.0", "reported_bytes": 5 * 32 * 7, "token_bytes": 7.0},
        **{"block": 32, "vocabulary": 2, "decoded": ["a", "\ufffd", "b"]},
    }
    (pipeline,) = Pipeline.made
    assert pipeline.scheduler.num_kv_blocks == 5 and pipeline.scheduler.enable_prefix_caching is False
    assert pipeline.properties["KV_CACHE_PRECISION"] == "u8" and not hasattr(pipeline.scheduler, "use_cache_eviction")


def test_eviction_is_set_and_tried_with_a_prompt_that_is_longer(made):
    made(context=300, max_cache_size=128, precision=None)
    (pipeline,) = Pipeline.made
    assert pipeline.scheduler.cache_eviction_config == {
        **{"start_size": 32, "recent_size": 32, "max_cache_size": 128, "aggregation_mode": "sum"},
        **{"apply_rotation": False, "snapkv_window_size": 8},
    }
    assert len(pipeline.read[0]) > 128 and "KV_CACHE_PRECISION" not in pipeline.properties


def test_sparse_attention_prefix_caching_and_kvcrush_are_set_where_they_are_asked_for(made):
    worker = made(context=300, max_cache_size=128, kvcrush=2, sparse_prefill="TRISHAPE", prefix_caching=True)
    scheduler = Pipeline.made[0].scheduler
    assert scheduler.cache_eviction_config["kvcrush_config"] == (2, "mean") and scheduler.enable_prefix_caching
    assert scheduler.use_sparse_attention and scheduler.sparse_attention_config == {
        **{"mode": "tri", "num_last_dense_tokens_in_prefill": 100, "num_retained_start_tokens_in_cache": 128},
        **{"num_retained_recent_tokens_in_cache": 1920, "xattention_threshold": 0.8},
    }
    assert worker.follow([1, 20], [5, 8], 1) == {"top": None}
    made()
    assert not hasattr(Pipeline.made[1].scheduler, "use_sparse_attention")
    # an answer that is read as a part of a sparse prompt is read otherwise than it was written
    assert made(sparse_prefill="TRISHAPE").follow([1, 20], [5, 8], 1) == {"top": None}


@pytest.mark.parametrize(
    "stops, at_least_one, tokens",
    [([23], False, [21, 22]), ([21], False, []), ([21], True, [71, 22, 23]), ([], False, [21, 22, 23])],
)
def test_greedy_tokens_end_before_a_stop_token_or_at_the_limit(made, stops, at_least_one, tokens):
    found = made().complete([1, 20], 3, stops, at_least_one, 1)
    assert found["tokens"] == tokens and found["prompt_tokens"] == 2
    places = [*tokens, *([stops[0]] if len(tokens) < 3 else [])]  # the stop token's as well
    assert found["top"] == [{f"token_id:{token}": -token / 100} for token in places]


def test_an_answer_is_followed_from_each_of_its_places(made):
    worker = made()
    assert worker.follow([1, 20], [5, 8], 1)["top"] == [{"token_id:21": -0.21}, {"token_id:6": -0.06}]
    assert made(max_cache_size=96, context=300).follow([1, 20], [5, 8], 1) == {"top": None}


def test_given_tokens_are_scored_in_one_pass_that_repeats_them(made, monkeypatch):
    worker = made()
    assert worker.score([1, 20], [5, 8], 1) == {"logprobs": [-0.5, -0.8], "top": None, "read": 4}
    assert len(Pipeline.made[0].read) == 2  # the first question, and one more
    with pytest.raises(ValueError, match="echoes another prompt"):
        monkeypatch.setattr(worker, "generate", lambda ids, **rules: ([1, 20, 5], [1.0, -1.0, -0.5]))
        worker.score([1, 20], [5, 8], 1)


def test_after_a_question_that_failed_the_next_one_is_answered(made):
    worker = made()
    with pytest.raises(RuntimeError):
        worker.complete([13], 2, [], False, 0)
    assert worker.complete([20], 2, [], False, 0)["tokens"] == [21, 22]


def test_questions_that_do_not_fit_and_those_it_gives_up_are_errors(made):
    worker = made()
    with pytest.raises(ValueError, match=r"90 tokens and 20 new ones exceed engine\.context, 100 tokens"):
        worker.complete([1] * 90, 20, [], False, 0)
    assert len(worker.complete([1] * 80, 20, [], False, 0)["tokens"]) == 20  # they fill the context
    with pytest.raises(ValueError, match="status IGNORED"):
        worker.complete([66], 2, [], False, 0)


def test_what_it_cannot_compute_fails_before_the_first_question_in_its_words(made):
    with pytest.raises(RuntimeError) as caught:
        made(precision="u3")
    assert in_short(caught.value) == "Check 'x' failed; no such thing"


def test_without_the_package_the_process_says_so_in_json():
    asked = {"input": json.dumps(SETTINGS) + "\n", "capture_output": True, "text": True}
    ran = subprocess.run([sys.executable, "-I", worker_loop.__file__, openvino_worker.__file__], **asked)
    assert json.loads(ran.stdout) == {"error": "No module named 'openvino'"}
