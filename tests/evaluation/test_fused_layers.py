"""Decoding steps whose layers are compiled: no graph break, one compilation for all layers, few kernels on a GPU.

Kernels are counted in the code that Inductor makes for a GPU, without one (`tests.support.gpu_code`);
results/benchmarks/fused.json has more counts, by bench_fused.py.
"""

import pytest
import torch
from torch._dynamo.testing import CompileCounter

from kvbench.cache import packed
from kvbench.cache.batch import BatchCache
from kvbench.errors import UserError
from kvbench.evaluation import fused_layers
from kvbench.evaluation.decode import batched, decode
from kvbench.evaluation.fused_layers import DeviceCache, fused, with_compiled_layers
from kvbench.evaluation.generation import Generation
from kvbench.evaluation.prefill_passes import SharedPass
from kvbench.evaluation.recorded_steps import RecordedSteps, Recording, recording_of
from kvbench.ops.padded_attention import padded_attention
from kvbench.prefill import FullPrefill
from tests.evaluation.test_decode_replay import PACKED, UNION, N
from tests.support.every_method import HEAD_DIM, LAYERS, setting
from tests.support.gpu_code import GpuCode
from tests.support.replay import Recorded
from tests.support.tiny import prompt, tiny_model

pytestmark = pytest.mark.heavy

STEPS = 20
KERNELS = 13  # of a layer and token; launched one by one they are 40
KINDS = [["full"], ["kivi"], ["spindle"], PACKED]


class CompiledRecorded(Recorded):
    """The operations of a compiled step, too: torch compiles nothing within any other mode."""

    @classmethod
    def is_infra_mode(cls) -> bool:
        return True


def recorder(work):
    return CompiledRecorded(work).replay


def caches_of(model, names) -> tuple[BatchCache, torch.Tensor]:
    methods = [UNION if name == "union" else setting(name).method for name in names]
    with torch.inference_mode():
        passes = [SharedPass(model, prompt(N), FullPrefill(), method.needs) for method in methods]
        rows = [one.compress(method, N // 2) for one, method in zip(passes, methods, strict=True)]
    cache, logits = batched([row.caches for row in rows]), rows[0].logits.expand(len(rows), -1)
    cache.make_room(STEPS)
    return cache, logits


def decoded(model, names, capture=None, fused=None) -> list[Generation]:
    cache, logits = caches_of(model, names)
    return decode(model, cache, logits, STEPS, frozenset(), recording=capture and Recording(capture, fused))


def compiled(model, names, backend) -> list[Generation]:
    return decoded(model, names, recorder, with_compiled_layers(model, backend=backend))


def texts(rows: list[Generation]) -> list[list[int]]:
    return [row.tokens for row in rows]


@pytest.fixture(autouse=True)
def from_the_start(monkeypatch):
    """Attention as on a GPU without Triton, and no compilation of an earlier test."""
    monkeypatch.setattr(packed, "packed_attention", padded_attention)
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.parametrize("names", KINDS, ids="+".join)
def test_a_layer_is_one_graph_that_all_layers_share_and_decodes_the_same_tokens(names):
    model, counter = tiny_model(num_layers=LAYERS, head_dim=HEAD_DIM), CompileCounter()
    eager, graph = decoded(model, names), compiled(model, names, counter)
    assert texts(graph) == texts(eager)
    assert counter.frame_count == 1  # `fullgraph`: a break is an error
    assert [row.decode_bytes for row in graph] == [row.decode_bytes for row in eager]
    assert {row.engine for row in graph} == {"fused"} and {row.engine for row in eager} == {"eager"}
    assert {row.repeated for row in graph} <= {STEPS - 3, STEPS - 4}  # one before compiling, one that compiles


def test_steps_over_coded_caches_are_recorded_without_compiling():
    model, counter = tiny_model(num_layers=LAYERS, head_dim=HEAD_DIM), CompileCounter()
    (row,) = compiled(model, ["turboquant_4"], counter)
    assert (row.engine, counter.frame_count) == ("graph", 0)


def test_another_batch_is_compiled_again_only_for_other_kinds_and_for_more_rows_than_one():
    model, counter = tiny_model(), CompileCounter()
    other, counts = with_compiled_layers(model, backend=counter), []
    for names in (["full"], ["snapkv"], ["full"] * 2, ["snapkv"] * 3, ["union"], ["union", "full", "adakv"]):
        decoded(model, names, recorder, other)
        counts.append(counter.frame_count)
    assert counts == [1, 1, 2, 2, 3, 4]


def test_a_graph_break_is_an_error_that_names_the_other_engines(monkeypatch):
    def attend_with_a_break(*args):
        torch._dynamo.graph_break()
        return padded_attention(*args)

    monkeypatch.setattr(packed, "packed_attention", attend_with_a_break)
    with pytest.raises(UserError, match=r"decode.engine=fused: a layer cannot be compiled .*: graph or eager"):
        compiled(tiny_model(), ["full"], CompileCounter())


def test_layers_that_take_their_neighbours_caches_decode_other_tokens(monkeypatch):
    model = tiny_model()
    right = compiled(model, ["snapkv"], CompileCounter())

    class Shifted(DeviceCache):
        def __init__(self, cache):
            super().__init__(cache)
            self.layer = self.layer.next

    monkeypatch.setattr("kvbench.evaluation.recorded_steps.DeviceCache", Shifted)
    torch._dynamo.reset()
    assert texts(compiled(model, ["snapkv"], CompileCounter())) != texts(right)


def test_the_compiled_layers_are_another_models_with_the_same_weights(monkeypatch):
    monkeypatch.setattr(fused_layers, "OPTIONS", {})
    model = tiny_model()
    other = fused(model)
    assert fused(model) is other and other is not model
    storages, others = ({x.untyped_storage().data_ptr() for x in one.parameters()} for one in (model, other))
    assert storages == others
    assert not any(layer._compiled_call_impl for layer in model.get_decoder().layers)
    assert all(layer._compiled_call_impl for layer in other.get_decoder().layers)


def test_it_needs_a_model_on_one_gpu():
    with pytest.raises(UserError, match=r"decode\.engine=fused needs a model on one GPU, and this one is on a CPU"):
        recording_of("fused", tiny_model())


@torch.inference_mode()
@pytest.mark.parametrize("family, names", [("llama", ["full"]), ("qwen3", ["adakv", "union", "full"])])
def test_a_layer_is_few_kernels_on_a_gpu(family, names, monkeypatch):
    monkeypatch.undo()  # attention is an operator here
    model, made = tiny_model(family, num_layers=2).bfloat16(), GpuCode()
    cache, logits = caches_of(model, names)
    steps = RecordedSteps(model, cache, Recording(recorder, with_compiled_layers(model, backend=made)))
    for _ in range(2):  # the second one compiles
        steps(logits.argmax(dim=-1), STEPS)
    (kernels,) = made.kernels()
    assert kernels["kvbench.packed_append"] and kernels["kvbench.packed_attention"]
    assert kernels.total() <= KERNELS, kernels
