"""Decoding steps whose layers are compiled: no graph break, one compilation for all layers, eager tokens."""

import pytest
import torch
from torch._dynamo.testing import CompileCounter

from kvbench.evaluation.decode import Generation, batched, decode_greedily
from kvbench.evaluation.fused_layers import with_compiled_layers
from kvbench.evaluation.prefill_passes import SharedPass
from kvbench.prefill import FullPrefill
from tests.evaluation.test_decode_replay import MIXED, UNION, N, attend
from tests.support.every_method import setting
from tests.support.replay import Recorded
from tests.support.tiny import prompt, tiny_model

pytestmark = pytest.mark.heavy

STEPS = 20


class CompiledRecorded(Recorded):
    """The operations of a compiled step, too: torch compiles nothing within any other mode."""

    @classmethod
    def is_infra_mode(cls) -> bool:
        return True


def recorder(work):
    return CompiledRecorded(work).replay


def decoded(model, names, capture=None, fused=None) -> list[Generation]:
    methods = [UNION if name == "union" else setting(name).method for name in names]
    with torch.inference_mode():
        passes = [SharedPass(model, prompt(N), FullPrefill(), method.needs) for method in methods]
        rows = [one.compress(method, N // 2) for one, method in zip(passes, methods, strict=True)]
    cache, logits = batched([row.caches for row in rows]), rows[0].logits.expand(len(rows), -1)
    cache.make_room(STEPS)
    return decode_greedily(model, cache, logits, STEPS, frozenset(), capture=capture, fused=fused)


@pytest.fixture(autouse=True)
def from_the_start():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.parametrize("names", [*([name] for name in MIXED), MIXED, ["union", "full"]], ids="+".join)
def test_a_layer_is_one_graph_and_all_layers_share_it(names, monkeypatch):
    monkeypatch.setattr("kvbench.cache.packed.packed_attention", attend)
    model, counter = tiny_model(num_layers=4), CompileCounter()
    fused = with_compiled_layers(model, backend=counter)
    eager, compiled = decoded(model, names), decoded(model, names, recorder, fused)
    assert [row.tokens for row in compiled] == [row.tokens for row in eager]
    assert [row.decode_bytes for row in compiled] == [row.decode_bytes for row in eager]
    assert {row.engine for row in compiled} == {"fused"} and {row.engine for row in eager} == {"eager"}
    assert counter.frame_count == 1
