"""Counting what a GPU would be made to do: what is an operation, a kernel, a wait."""

import pytest
import torch

from tests.support.launches import Counting


def counted(work, dtype=torch.float32):
    with Counting():
        x = torch.arange(12, device="cuda:0").view(3, 4).to(dtype)
        mask = x > 5
        host = torch.tensor([0, 1])
    with torch.inference_mode(), Counting() as counting:
        work(x, mask, host)
    return counting.counts


def test_a_view_launches_nothing_and_a_composite_function_what_it_is_made_of():
    counts = counted(lambda x, mask, host: x.transpose(0, 1).unsqueeze(0))
    assert (counts.operations, counts.kernels, counts.waits) == (2, 0, 0)
    counts = counted(lambda x, mask, host: x.repeat_interleave(2, dim=0))
    assert (counts.operations, counts.kernels) == (1, 1)
    assert counted(lambda x, mask, host: x.to(torch.float32)).kernels == 0
    assert counted(lambda x, mask, host: x.to(torch.bfloat16)).kernels == 1


def test_attention_and_a_linear_layer_are_one_kernel_each():
    counts = counted(lambda x, mask, host: torch.nn.functional.linear(x, x))
    assert (counts.operations, counts.kernels) == (1, 1)
    counts = counted(lambda x, mask, host: torch.nn.functional.scaled_dot_product_attention(x, x, x))
    assert (counts.operations, counts.kernels) == (1, 1)


WAITS = {
    "item": lambda x, mask, host: x.sum().item(),
    "tolist": lambda x, mask, host: x.tolist(),
    "int": lambda x, mask, host: int(x[0, 0]),
    "condition": lambda x, mask, host: bool(x.sum() > 3),
    "slice": lambda x, mask, host: x[: x.long()[0, 1]],
    "to the CPU": lambda x, mask, host: x.cpu(),
    "to a CPU tensor": lambda x, mask, host: x.to("cpu"),
    "nonzero": lambda x, mask, host: mask.nonzero(),
    "mask as index": lambda x, mask, host: x[mask],
    "assigned through a mask": lambda x, mask, host: x.clone().__setitem__(mask, x.flatten()[:6]),
    "unique": lambda x, mask, host: x.unique(),
    "equal": lambda x, mask, host: torch.equal(x, x),
    "repeats": lambda x, mask, host: x.repeat_interleave(x[:, 0].long(), dim=0),
}


@pytest.mark.parametrize("name", WAITS)
def test_what_makes_the_cpu_wait_is_a_wait(name):
    assert counted(WAITS[name]).waits == 1


def test_filling_through_a_mask_and_known_repeats_do_not_wait():
    assert counted(lambda x, mask, host: x.clone().masked_fill_(mask, 0)).waits == 0
    assert counted(lambda x, mask, host: x.repeat_interleave(x[:, 0].long(), dim=0, output_size=12)).waits == 0


def test_copies_of_host_values_are_uploads_and_their_work_on_the_cpu_counts_nothing():
    counts = counted(lambda x, mask, host: x[host])
    assert (counts.uploads, counts.waits, counts.kernels) == (1, 0, 1)
    assert counted(lambda x, mask, host: x[[0, 1]]).uploads == 1
    assert counted(lambda x, mask, host: torch.tensor([1, 2], device="cuda:0")).numbers() == (0, 0, 0, 1)
    assert counted(lambda x, mask, host: (host + 1).sum().item()).numbers() == (0, 0, 0, 0)
