"""Decoding by steps that are recorded once and repeated without Python: on a CPU what a CUDA graph does on a GPU."""

from collections.abc import Callable
from functools import partial, reduce
from itertools import pairwise
from operator import attrgetter, or_

import pytest
import torch

from kvbench.cache import packed
from kvbench.cache.batch import BatchCache
from kvbench.evaluation import decode as decoding
from kvbench.evaluation import recorded_steps, steps
from kvbench.evaluation.decode import batched, decode, read
from kvbench.evaluation.generation import Generation
from kvbench.evaluation.prefill_passes import SharedPass
from kvbench.evaluation.recorded_steps import Recording
from kvbench.methods import Dense, Eviction, WindowAttention
from kvbench.ops.padded_attention import padded_attention
from kvbench.prefill import FullPrefill
from tests.support.every_method import HEAD_DIM, LAYERS, setting
from tests.support.hybrids import hybrid_model
from tests.support.replay import Allocations, Recorded
from tests.support.representatives import KINDS, every_third
from tests.support.tiny import prompt, tiny_model

pytestmark = pytest.mark.heavy

N, STEPS = 90, 66
UNION = Eviction(scoring=WindowAttention(window=8), granularity="query_head", storage=Dense("union"))
CAPTURED = {"Packed", "RaggedLayer", "UnionLayer", "QuantisedLayer", "CodedLayer", "CodebookLayer"}  # kinds of caches


class Recorder:
    """A `Capture`, with all that it recorded."""

    def __init__(self) -> None:
        self.recorded: list[Recorded] = []

    def __call__(self, work: Callable[[], None]) -> Callable[[], None]:
        self.recorded.append(Recorded(work))
        return self.recorded[-1].replay


@pytest.fixture(autouse=True)
def on_a_gpu(monkeypatch):
    """What is no operator there is torch's operations, as codes that are decoded."""
    monkeypatch.setattr(packed, "packed_attention", padded_attention)  # without Triton


def caches(model, names: list[str]) -> tuple[BatchCache, torch.Tensor]:
    """A batch of presets' caches, and the last logits of its rows."""
    methods = [UNION if name == "union" else setting(name).method for name in names]
    with torch.inference_mode():
        shared = SharedPass(model, prompt(N), FullPrefill(), reduce(or_, (method.needs for method in methods)))
        rows = [shared.compress(method, N // 2) for method in methods]
    return batched([row.caches for row in rows]), rows[0].logits.expand(len(rows), -1)


def decoded(
    model, names: list[str], capture=None, stop=frozenset(), count: int = STEPS
) -> tuple[list[Generation], BatchCache]:
    """What the rows decode, in caches with the same room whether steps are captured or not."""
    cache, logits = caches(model, names)
    cache.make_room(count)
    return decode(model, cache, logits, count, stop, recording=capture and Recording(capture)), cache


def texts(rows: list[Generation]) -> list[list[int]]:
    return [row.tokens for row in rows]


PACKED = ["full", "snapkv", "streaming_llm", "pyramidkv", "knorm", "adakv", "criticalkv_snapkv", "union"]
EVERY_KIND = [
    *("full", "adakv", "union", "kivi", "kivi_k4v2", "snapkv_kivi4", "fp8_head", "snapkv_fp8", "turboquant_4"),
    *("ggml_q4_0", "nvfp4", "spindle"),
]
BLOCKS = 5  # steps that Python launches: in 4 keys are quantised, in one a codebook makes room
FLOATS, HALVES = torch.float32, torch.bfloat16


@pytest.mark.parametrize(
    "names, blocks, dtype",
    [
        (["full"], 0, FLOATS),
        (["union"], 0, HALVES),
        (["snapkv"] * 2, 0, FLOATS),
        (PACKED + PACKED[:4], 0, HALVES),
        (EVERY_KIND, BLOCKS, FLOATS),
    ],
    ids=[
        *("full-torch.float32", "union-torch.bfloat16", "two-torch.float32", "12 of packed kinds-torch.bfloat16"),
        "12 of every kind-torch.float32",
    ],
)
def test_repeated_steps_decode_the_tokens_of_eager_ones_and_read_nothing(names, blocks, dtype):
    model, recorder = tiny_model(num_layers=LAYERS, head_dim=HEAD_DIM).to(dtype), Recorder()
    (eager, one), (graph, other) = decoded(model, names), decoded(model, names, recorder)
    assert texts(graph) == texts(eager)
    assert {row.repeated for row in graph} == {STEPS - 2 - blocks} and {row.repeated for row in eager} == {0}
    assert len(recorder.recorded) == 1 and not recorder.recorded[0].reads
    assert [row.decode_bytes for row in graph] == [row.decode_bytes for row in eager]
    assert [row.steps for row in graph] == [STEPS - 1] * len(names)
    assert [x.shape for layer in other.layers for x in layer.tensors()] == [
        x.shape for layer in one.layers for x in layer.tensors()
    ]


@pytest.mark.parametrize("name", every_third(KINDS))
def test_each_cache_is_repeated_or_launched_by_python_and_decodes_the_same_tokens(name, monkeypatch):
    """Of what a step allocates nothing outlives it, unless Python makes tables or room in it.

    In bfloat16, which takes the casts besides. KIVI quantises its keys once within these tokens.
    """
    count = 12
    model, recorder = tiny_model(num_layers=LAYERS, head_dim=HEAD_DIM).to(torch.bfloat16), Recorder()
    allocations, moves, step = Allocations(), [], steps.step

    def watched(model, cache, *args):
        allocations.step()
        moves.append(cache.moves)
        with allocations:
            return step(model, cache, *args)

    monkeypatch.setattr(steps, "step", watched)
    eager, _ = decoded(model, [name], count=count)
    outliving = allocations.outliving
    monkeypatch.setattr(steps, "step", step)
    graph, cache = decoded(model, [name], recorder, count=count)
    kinds = {type(part.cache).__name__ for layer in cache.attending for part in layer.parts}
    assert texts(graph) == texts(eager)
    assert bool(graph[0].repeated) == (kinds <= CAPTURED), kinds
    assert not any(recorded.reads for recorded in recorder.recorded)
    if graph[0].repeated:
        assert len(recorder.recorded) == 1 and graph[0].repeated >= count - 2 - 2 * LAYERS
        still = [count for count, (a, b) in zip(outliving, pairwise(moves), strict=True) if a == b]
        assert not any(still[1:]), still  # the first step makes the tables


def test_the_likeliest_token_is_chosen_within_the_recorded_step(monkeypatch):
    chosen, choose = [], decoding.choose
    monkeypatch.setattr(decoding, "choose", lambda logits: chosen.append(len(logits)) or choose(logits))
    model, recorder, names = tiny_model(), Recorder(), ["full", "snapkv"]
    graph, _ = decoded(model, names, recorder)
    assert chosen == [2] * 3  # after the prompt, after the step that Python launches, and in the recording
    assert {row.repeated for row in graph} == {STEPS - 2} and not recorder.recorded[0].reads


def test_a_long_answer_gets_room_again_and_is_recorded_again(monkeypatch):
    model, recorder = tiny_model(), Recorder()
    (eager, _) = decoded(model, ["snapkv", "adakv"])
    cache, logits = caches(model, ["snapkv", "adakv"])
    monkeypatch.setattr("kvbench.evaluation.recorded_steps.ROOM", 20)
    monkeypatch.setattr("kvbench.evaluation.decode.ROOM", 20)
    found = decode(model, cache, logits, STEPS, frozenset(), recording=Recording(recorder))
    assert texts(found) == texts(eager) and len(recorder.recorded) == 3
    assert found[0].repeated == STEPS - 1 - 3 - 5  # a step before each recording, and too few after the last room


def test_room_for_a_codebook_is_made_between_recordings():
    model, recorder = tiny_model(num_layers=LAYERS, head_dim=HEAD_DIM), Recorder()
    decodes = partial(decode, max_new_tokens=90, stop_tokens=frozenset())
    (eager,) = decodes(model, *caches(model, ["spindle"]))
    (graph,) = decodes(model, *caches(model, ["spindle"]), recording=Recording(recorder))
    assert graph.tokens == eager.tokens and graph.decode_bytes == eager.decode_bytes
    assert len(recorder.recorded) == 2 and graph.repeated == 89 - 2  # Python launches one before each


def test_a_step_whose_positions_do_not_advance_decodes_other_tokens(monkeypatch):
    model, step = tiny_model(num_layers=LAYERS, head_dim=HEAD_DIM), steps.step
    right, _ = decoded(model, EVERY_KIND, Recorder(), count=10)
    for module in (steps, recorded_steps):
        monkeypatch.setattr(module, "step", lambda *args: step(*args[:3], args[3].clone()))
    wrong, _ = decoded(model, EVERY_KIND, Recorder(), count=10)
    same = [name for name, a, b in zip(EVERY_KIND, texts(right), texts(wrong), strict=True) if a == b]
    assert not same


def test_rows_that_end_leave_nothing_behind_though_the_host_reads_every_eighth_token():
    """Tokens, passes and bytes are those of decoding that reads every token; the others are recorded again."""
    model, recorder = tiny_model().double(), Recorder()
    first, second = texts(decoded(model, ["full", "snapkv"])[0])
    stop = frozenset({next(token for token in second[10:] if token not in first)})
    names = ["full", "snapkv", "streaming_llm"]
    (eager, _), (graph, _) = decoded(model, names, None, stop), decoded(model, names, recorder, stop)
    assert texts(graph) == texts(eager) and [row.ended_by for row in graph] == [row.ended_by for row in eager]
    assert [row.steps for row in graph] == [row.steps for row in eager]
    assert [row.decode_bytes for row in graph] == [row.decode_bytes for row in eager]
    assert len(recorder.recorded) >= 2 and eager[1].ended_by


@pytest.mark.parametrize("name", ["snapkv", "fp8_token"])
def test_a_conversation_goes_on_behind_the_end_and_not_behind_what_was_taken_back(name):
    exact = 1e-9 if name == "snapkv" else 1e-4  # float8 numbers are made of no doubles
    model = tiny_model().double() if name == "snapkv" else tiny_model()
    (one,), cache = decoded(model, [name])
    stop = frozenset({one.tokens[11]})
    (short,), undisturbed = decoded(model, [name], None, stop)
    (same,), cache = decoded(model, [name], Recorder(), stop)
    assert (same.tokens, same.steps) == (short.tokens, short.steps) and len(same.tokens) % 8
    assert cache.get_seq_length() == undisturbed.get_seq_length() == N + same.steps
    expected, found = (read(model, held, prompt(5)) for held in (undisturbed, cache))
    assert torch.allclose(found, expected, atol=exact)
    held = [[layer.rows[0].filled_bytes for layer in each.layers] for each in (cache, undisturbed)]
    assert held[0] == held[1]


def counts_of(cache) -> torch.Tensor:
    """How many tokens a cache has, on the device."""
    kinds = {"Packed": "tables.lengths", "QuantisedLayer": "lengths", "CodedLayer": "end"}
    return attrgetter(kinds.get(type(cache).__name__, "layout.decoded"))(cache)


def test_a_step_that_cannot_be_captured_is_launched_by_python_as_all_later_ones(capsys):
    model = tiny_model(num_layers=LAYERS, head_dim=HEAD_DIM)
    names = ["snapkv", "adakv", "kivi", "fp8_head", "spindle"]
    count = 20
    (eager, _) = decoded(model, names, count=count)

    def capture(work):
        """It fails in the third layer: on a GPU nothing of what was recorded has run."""
        counts = [counts_of(each) for each in cache.joinable]
        sizes = [side.sizes for layer in cache.layers for side in (layer.joinable[-1].k, layer.joinable[-1].v)]
        state = [*(tensor for layer in cache.layers for tensor in layer.tensors()), *counts, *sizes]
        held = [(tensor, tensor.clone()) for tensor in state]
        attend = cache.layers[2].attend
        cache.layers[2].attend = lambda *args: (_ for _ in ()).throw(RuntimeError("not permitted\nwhen capturing"))
        try:
            work()
        finally:
            cache.layers[2].attend = attend
            for tensor, before in held:
                tensor.copy_(before)

    cache, logits = caches(model, names)
    cache.make_room(count)
    found = decode(model, cache, logits, count, frozenset(), recording=Recording(capture))
    assert texts(found) == texts(eager) and found[0].repeated == 0
    assert [row.decode_bytes for row in found] == [row.decode_bytes for row in eager]
    assert "cannot be captured: not permitted" in capsys.readouterr().err


@pytest.mark.parametrize("family", ["qwen3_5_text", "lfm2"])
@pytest.mark.parametrize("names", [["full"], ["full", "snapkv", "adakv"]], ids=len)
def test_steps_of_hybrid_models_are_repeated_with_their_states(family, names):
    model, recorder, count = hybrid_model(family), Recorder(), 24
    (eager, _), (graph, _) = decoded(model, names, count=count), decoded(model, names, recorder, count=count)
    assert texts(graph) == texts(eager) and len(set(texts(graph)[0])) > 5
    assert {row.repeated for row in graph} == {count - 2}
    assert len(recorder.recorded) == 1 and not recorder.recorded[0].reads
    assert [row.decode_bytes for row in graph] == [row.decode_bytes for row in eager]


def test_a_sequence_with_a_state_ends_where_it_ends_and_the_others_go_on():
    """Nothing can be taken back from a state, so the host looks at every token."""
    model, names, count = hybrid_model("qwen3_5_text"), ["full", "snapkv", "adakv"], 20
    eager, _ = decoded(model, names, count=count)
    stop = frozenset({eager[1].tokens[9]})
    plain, _ = decoded(model, names, None, stop, count)
    graph, _ = decoded(model, names, Recorder(), stop, count)
    assert texts(graph) == texts(plain)
    assert [row.steps for row in graph] == [row.steps for row in plain]
    assert [row.decode_bytes for row in graph] == [row.decode_bytes for row in plain]
