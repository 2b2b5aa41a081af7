"""A coded cache that decodes with room: attention, bytes and what is taken back are those of the cache alone."""

import pytest
import torch
from torch.testing import assert_close

from kvbench.cache.base import held_bytes, storage_bytes
from kvbench.cache.coded.block_format import BlockSequence
from kvbench.cache.coded.float8 import Float8Sequence
from kvbench.cache.coded.layer import CodedLayer
from kvbench.cache.reserve_ratio import Kept
from kvbench.methods.turboquant.sequence import RotatedSequence, UniformSequence
from kvbench.ops.formats import GGML, MICROSCALING
from kvbench.ops.softmax import Softmax
from tests.support.batch_layers import batch_layer

KV, HEADS, DIM, N = 2, 6, 32, 21
KINDS = {
    **{
        f"float8 {scale}": (lambda rows, scale=scale: Float8Sequence(rows, scale))
        for scale in ("unit", "head", "token")
    },
    "rotated": lambda rows: RotatedSequence(rows, 3, "hadamard", 1, True),
    "uniform": lambda rows: UniformSequence(rows, 4),
    **{name: (lambda rows, form=form: BlockSequence(rows, form)) for name, form in (GGML | MICROSCALING).items()},
}


def layer(kind: str, heads: int, dtype: torch.dtype) -> CodedLayer:
    keys, values = torch.randn(2, heads, N, DIM, generator=torch.Generator().manual_seed(3)).to(dtype)
    return CodedLayer(KINDS[kind](keys), KINDS[kind](values), N, Kept.tokens(N, N, N, heads))


def new(step: int, dtype: torch.dtype) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(step)
    return [torch.randn(1, heads, 1, DIM, generator=generator).to(dtype) for heads in (HEADS, KV, KV)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scaling", [0.3, Softmax(0.3, 5.0, torch.linspace(-1, 2, HEADS))], ids=["plain", "bent"])
def test_it_attends_and_counts_as_alone_also_after_tokens_were_taken_back(kind, dtype, scaling):
    alone, batch = layer(kind, KV, dtype), batch_layer([layer(kind, KV, dtype)])
    batch.make_room(12)
    (rows,) = batch.joinable
    assert storage_bytes(batch.tensors()) == held_bytes(batch.rows), "nothing is held twice"
    before = [x.data_ptr() for x in rows.tensors()]
    exact = {"atol": 1e-5, "rtol": 1e-5} if dtype == torch.float32 else {"atol": 1e-2, "rtol": 1e-2}
    for step in range(12):
        if step == 5:  # three tokens that the cache alone never saw
            for extra in range(100, 103):
                batch.update(*new(extra, dtype)[1:])
            batch.take_back([3])
        query, keys, values = new(step, dtype)
        alone.update(keys, values)
        batch.update(keys, values)
        assert_close(batch.attend(query, scaling), alone.attend(query, scaling), **exact)
        assert (batch.rows[0].filled_bytes, batch.rows[0].read_bytes) == (alone.filled_bytes, alone.read_bytes)
    assert [x.data_ptr() for x in rows.tensors()] == before and rows.room == rows.ahead == 0
    assert rows.end.tolist() == [N + 12] and batch.get_seq_length() == N + 12


def test_every_query_head_may_have_its_own_copies_and_room_is_made_again_after_tokens_of_a_cache_alone():
    dtype = torch.float32
    alone, other = (layer("float8 token", HEADS, dtype) for _ in range(2))
    for step in range(100, 103):
        alone.update(*new(step, dtype)[1:])
        other.update(*new(step, dtype)[1:])
    assert all(not part.buffer[:, part.length :].view(torch.uint8).any() for part in (*other.k.parts, *other.v.parts))
    batch = batch_layer([other])
    batch.make_room(2)
    for step in range(5):
        query, keys, values = new(step, dtype)
        alone.update(keys, values)
        batch.update(keys, values)
        assert_close(batch.attend(query, 0.3), alone.attend(query, 0.3))
