"""Recording a CUDA graph without a GPU: with torch's rules for memory pools in place of its code."""

import gc
import weakref
from contextlib import contextmanager

import pytest
import torch

from kvbench.errors import UserError
from kvbench.evaluation import cuda_graph as graphs
from kvbench.evaluation.cuda_graph import cuda_graph
from kvbench.evaluation.decode import choose, decode
from kvbench.evaluation.recorded_steps import Recording, recording_of
from kvbench.utils import console
from tests.evaluation.test_decode_replay import Recorder, caches, texts
from tests.support.fake_devices import FakeDevices, place
from tests.support.tiny import tiny_model

STEPS, STOP = 99, 3
ASSERT = "use_count > 0 INTERNAL ASSERT FAILED"


class Allocator:
    """torch's pools, on a GPU and in pinned memory: a number is a pool once something counts as its user, and lives on
    without users while a tensor of it does, as the workspace of cuBLAS does for ever. Nothing more can be recorded into
    such a pool."""

    def __init__(self):
        self.users: dict[tuple[int, int], int] = {}
        self.handles = 0

    def handle(self):
        self.handles += 1
        return (0, self.handles)

    def use(self, pool):
        if self.users.get(pool) == 0:
            raise RuntimeError(ASSERT)
        self.users[pool] = self.users.get(pool, 0) + 1

    def release(self, pool):
        self.users[pool] -= 1


class Stream:
    """A stream of a device; `current` is that of the process."""

    current: "Stream"

    def __init__(self, device=0):
        self.device, self.waited = device, []

    def wait_stream(self, other):
        self.waited.append(other)


class Device:
    """What torch.cuda has of graphs, pools and streams."""

    def __init__(self, monkeypatch):
        allocator, host = self.allocator, self.host = Allocator(), Allocator()
        device = self
        self.default = Stream.current = Stream()
        self.log: list[str] = []

        class MemPool:
            def __init__(self):
                self.id = allocator.handle()
                allocator.use(self.id)
                weakref.finalize(self, allocator.release, self.id)

            def pool(self):
                return self.id

        class CUDAGraph:
            def capture_begin(self, pool=None):
                self.own = pool or allocator.handle()
                for each in (allocator, host):
                    try:
                        each.use(self.own)
                    except RuntimeError:
                        device.log.append("assert")
                        raise
                    weakref.finalize(self, each.release, self.own)
                assert Stream.current is not device.default, "the default stream records nothing"
                assert not gc.isenabled()

            def capture_end(self):
                if device.fails:
                    raise RuntimeError("the recording was given up")
                device.log.append("captured")

            def pool(self):
                return self.own

            def replay(self):
                assert Stream.current is device.default
                device.log.append("replay")

        @contextmanager
        def stream(other):
            before, Stream.current = Stream.current, other
            try:
                yield
            finally:
                Stream.current = before

        self.fails = False
        for name, value in {
            "MemPool": MemPool,
            "CUDAGraph": CUDAGraph,
            "Stream": Stream,
            "stream": stream,
            "current_stream": lambda: Stream.current,
            "current_device": lambda: 0,
            "device": lambda index: contextmanager(lambda: iter([None]))(),
            "graph_pool_handle": allocator.handle,
        }.items():
            monkeypatch.setattr(torch.cuda, name, value)
        monkeypatch.setattr(graphs, "_something", lambda: None)


@pytest.fixture
def device(monkeypatch):
    caches_of = (graphs.first_graph, graphs.side_stream, console.warn_once)
    for each in caches_of:
        each.cache_clear()
    yield Device(monkeypatch)
    for each in caches_of:
        each.cache_clear()


def test_a_graph_is_recorded_once_and_run_and_garbage_collected_again(device):
    repeat = cuda_graph(lambda: None)
    repeat()
    assert device.log == ["captured", "captured", "replay", "replay"] and gc.isenabled()  # the first is kept


def test_graphs_are_recorded_after_all_earlier_ones_have_ended(device):
    for _ in range(3):
        cuda_graph(lambda: None)
        gc.collect()
    assert device.log == ["captured", *["captured", "replay"] * 3]
    assert len(device.allocator.users) == len(device.host.users) == 1  # one pool


@pytest.mark.parametrize("kept", ["a number", "a pool of the GPU's memory"])
def test_the_number_of_a_pool_or_its_memory_on_the_gpu_alone_do_not_keep_it(device, monkeypatch, kept):
    """What the model of torch is for: with either, the second recording fails, as seen on an H200 with torch 2.11."""
    number = torch.cuda.graph_pool_handle()
    pool = type("Handle", (), {"pool": lambda self: number})() if kept == "a number" else torch.cuda.MemPool()
    monkeypatch.setattr(graphs, "first_graph", lambda device: pool)
    cuda_graph(lambda: None)
    with pytest.raises(RuntimeError, match="INTERNAL ASSERT"):
        cuda_graph(lambda: None)


@pytest.mark.parametrize("ends", [False, True], ids=["it can be ended", "it cannot"])
def test_a_failed_recording_leaves_the_stream_and_the_garbage_collector_as_they_were(device, ends):
    def work():
        device.fails = ends
        raise RuntimeError("not permitted")

    for enabled in (True, False):
        (gc.enable if enabled else gc.disable)()
        try:
            with pytest.raises(RuntimeError, match="not permitted"):
                cuda_graph(work)
            assert gc.isenabled() is enabled and Stream.current is device.default
        finally:
            gc.enable()
    device.fails = False
    cuda_graph(lambda: None)
    assert device.log[-1] == "replay"


class OnDevice(Recorder):
    """Steps that are recorded with `cuda_graph`'s rules and repeated on the CPU."""

    def __call__(self, work):
        made = []
        keep = cuda_graph(lambda: made.append(Recorder.__call__(self, work)))
        return lambda: (keep(), made[0]())[1]


@pytest.mark.heavy
def test_every_answer_of_a_process_is_decoded_by_a_graph(device):
    model = tiny_model()
    for _ in range(3):
        cache, logits = caches(model, ["full", "snapkv"])
        rows = decode(model, cache, logits, STEPS, frozenset(), recording=Recording(OnDevice()))
        assert {row.repeated for row in rows} == {STEPS - 2}
        gc.collect()
    assert "assert" not in device.log


class Ending:
    """The likeliest token, and the stop token once a sequence has as many as it gets."""

    def __init__(self, lengths):
        self.lengths, self.chosen = lengths, 0

    def __call__(self, logits, rows):
        others = logits.index_fill(1, torch.tensor([STOP]), float("-inf"))
        choice, self.chosen = choose(others), self.chosen + 1
        ends = torch.tensor([self.chosen > self.lengths[row] for row in rows])
        return choice._replace(tokens=choice.tokens.where(~ends, STOP))


@pytest.mark.heavy
def test_rows_that_end_stay_until_half_of_the_batch_has_ended(device):
    """Seven rows that end one after the other are recorded three times, and their records are those of eager steps."""
    model = tiny_model().double()
    names = ["full", "snapkv", "streaming_llm", "pyramidkv", "knorm", "adakv", "union"]
    lengths = [16 + 11 * place for place in range(len(names))]

    def run(capture):
        cache, logits = caches(model, names)
        cache.make_room(STEPS)
        return decode(
            model, cache, logits, STEPS, frozenset({STOP}), Ending(lengths), recording=capture and Recording(capture)
        )

    recorder = OnDevice()
    eager, graph = run(None), run(recorder)
    assert texts(graph) == texts(eager)
    assert [len(row.tokens) for row in graph] == lengths
    assert [row.steps for row in graph] == [row.steps for row in eager] == lengths
    assert [row.decode_bytes for row in graph] == [row.decode_bytes for row in eager]
    assert len(recorder.recorded) == 3
    assert all(row.engine == "graph" for row in graph)


def test_no_graph_is_recorded_over_weights_that_are_copied_to_the_gpu_for_every_token():
    model = tiny_model()
    model.hf_device_map = {"model.embed_tokens": 0, "model.layers.0": 0, "model.layers.1": "cpu", "lm_head": "disk"}
    place(model, gpus=1)
    with FakeDevices():
        assert recording_of("auto", model) is None
        with pytest.raises(UserError, match=r"engine=graph needs a model on one GPU, and this one is on a GPU in part"):
            recording_of("graph", model)
        model.hf_device_map = {"": 0}
        assert recording_of("auto", model).capture is cuda_graph
