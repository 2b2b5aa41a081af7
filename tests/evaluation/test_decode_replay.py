"""A step of a packed batch, recorded and replayed without Python: positions and lengths advance on the device."""

from functools import reduce
from operator import or_

import pytest
import torch

from kvbench.cache import packed
from kvbench.cache.batch import BatchCache
from kvbench.evaluation.decode import batched, decode_greedily, step
from kvbench.evaluation.prefill_passes import SharedPass
from kvbench.methods import Dense, Eviction, WindowAttention
from kvbench.ops.padded_attention import padded_attention
from kvbench.prefill import FullPrefill
from tests.support.every_method import setting
from tests.support.replay import Recorded
from tests.support.tiny import prompt, tiny_model

pytestmark = pytest.mark.heavy

N, STEPS = 90, 60  # all of them in the room that a packed batch has from its first token on
CAPACITY = N + packed.BLOCK
DENSE = ["full", "snapkv", "streaming_llm", "pyramidkv", "knorm"]
RAGGED = ["adakv", "criticalkv_snapkv"]
UNION = Eviction(scoring=WindowAttention(window=8), granularity="query_head", storage=Dense("union"))
ALL = [*DENSE, *RAGGED, "union"]


def attend(query, keys, values, starts, lengths, heads, group, longest, *rest):
    """A GPU's attention without Triton, whose tiles cover the whole capacity."""
    return padded_attention(query, keys, values, starts, lengths, heads, CAPACITY, *rest)


def caches(model, names: list[str]) -> tuple[BatchCache, torch.Tensor]:
    """A batch of presets' caches, and the last logits of its rows."""
    methods = [UNION if name == "union" else setting(name).method for name in names]
    with torch.inference_mode():
        shared = SharedPass(model, prompt(N), FullPrefill(), reduce(or_, (method.needs for method in methods)))
        rows = [shared.compress(method, N // 2) for method in methods]
    return batched([row.caches for row in rows]), rows[0].logits.expand(len(rows), -1)


def replayed(model, names: list[str], advance: bool = True) -> tuple[list[list[int]], list[str]]:
    """The rows' tokens, the first two of them eager, and the reads of the recorded step."""
    cache, logits = caches(model, names)
    ids, positions = logits.argmax(dim=-1), torch.full((1, 1), N)
    tokens = [ids.tolist()]

    def one() -> None:
        ids.copy_(step(model, cache, ids, positions if advance else positions.clone()).argmax(dim=-1))

    with torch.inference_mode():
        one()  # packs, and makes tables
        tokens.append(ids.tolist())
        recorded = Recorded(one)
        tokens.append(ids.tolist())
        for _ in range(STEPS - len(tokens)):
            recorded.replay()
            tokens.append(ids.tolist())
    return [list(row) for row in zip(*tokens, strict=True)], recorded.reads


@pytest.fixture(autouse=True)
def on_a_gpu(monkeypatch):
    monkeypatch.setattr(packed, "packed_attention", attend)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("names", [*([name] * 2 for name in ALL), DENSE, ALL])
def test_a_replayed_step_decodes_the_tokens_of_eager_decoding_and_reads_nothing(names, dtype):
    model = tiny_model().to(dtype)
    cache, logits = caches(model, names)
    eager = [row.tokens for row in decode_greedily(model, cache, logits, STEPS, frozenset())]
    tokens, reads = replayed(model, names)
    assert (tokens, reads) == (eager, [])


@pytest.mark.parametrize("name", ALL)
def test_a_step_whose_positions_do_not_advance_decodes_other_tokens(name):
    model = tiny_model()
    assert replayed(model, [name] * 2, advance=False)[0] != replayed(model, [name] * 2)[0]
