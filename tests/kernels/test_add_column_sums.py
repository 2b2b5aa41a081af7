"""Column sums' kernels: the reference's numbers."""

import pytest
import torch
from torch.testing import assert_close

from kvbench.ops.column_sums import column_sums
from kvbench.ops.operator import use_kernels
from tests.support.kernels import interpreted, record_launches
from tests.support.needs import need, packages

pytestmark = [pytest.mark.kernels, interpreted]
need("triton", packages("triton", "triton"))

from kvbench.ops.kernels import add_column_sums as kernels  # noqa: E402

CASES = [  # group, head_dim, q, start, first_causal
    (1, 64, 70, 0, 0),
    (3, 80, 33, 0, 0),
    (4, 96, 5, 64, 0),
    (8, 128, 1, 40, 0),
    (2, 256, 37, 0, 0),
    (2, 64, 50, 0, 42),
    (2, 64, 30, 40, 60),
    (1, 64, 1, 0, 0),
]
FEW = [(4, 64, 3, 1300, 0), (1, 80, 1, 600, 0), (2, 64, 40, 0, 1000)]  # queries that look at many keys


def tensors(group, head_dim, q, length, dtype):
    generator = torch.Generator().manual_seed(q)
    queries = torch.randn(q, 2 * group, head_dim, generator=generator).to(dtype).transpose(0, 1)
    return queries, torch.randn(2, length, head_dim, generator=generator).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("group, head_dim, q, start, first_causal", [*CASES, *FEW])
def test_sums_and_log_sums_are_the_references(group, head_dim, q, start, first_causal, weighted, dtype):
    queries, keys = tensors(group, head_dim, q, max(start + q + 3 * (first_causal > 0), first_causal), dtype)
    weights = torch.linspace(1, 2, q) if weighted else None
    before = torch.rand(2 * group, keys.shape[1] + 2)
    results = []
    for choice in ("torch", "triton"):
        with use_kernels(choice):
            results.append(
                column_sums(queries, keys, head_dim**-0.5, start, first_causal, weights, sums=before.clone()[:, :-2])
            )
    (sums, lse), (kernel_sums, kernel_lse) = results
    assert_close(kernel_lse, lse, atol=1e-5, rtol=1e-5)
    assert_close(kernel_sums, sums, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("group, head_dim, q, start, first_causal", [CASES[1], CASES[2], CASES[6], FEW[0]])
def test_log_sums_that_attention_had_are_not_made_again(group, head_dim, q, start, first_causal, monkeypatch):
    launched = record_launches(monkeypatch, kernels, "log_sums", "sum_columns")
    queries, keys = tensors(group, head_dim, q, max(start + q + 3 * (first_causal > 0), first_causal), torch.float32)
    given = queries, keys, head_dim**-0.5, start, first_causal
    with use_kernels("torch"):
        sums, lse = column_sums(*given)
    with use_kernels("triton"):
        of_kernel, same = column_sums(*given, lse=lse)
        twice, _ = column_sums(*given, lse=lse - torch.log(torch.tensor(2.0)))  # they are what weights are divided by
    assert launched == ["sum_columns"] * 2
    assert torch.equal(same, lse)
    assert_close(of_kernel, sums, atol=1e-5, rtol=1e-5)
    assert_close(twice, 2 * sums, atol=1e-5, rtol=1e-5)


def test_the_votes_of_a_window_fill_a_gpu():
    keys, splits = kernels.splitting(131_072, 32, 64)
    assert splits == 32 and keys * splits == 131_072
    assert kernels.splitting(131_072, 32 * 2048, 64) == (131_072, 1)  # those of a whole prompt are enough
    assert kernels.splitting(5, 32, 64) == (64, 1)
