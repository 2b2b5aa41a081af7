"""How much other CPU kernels change keys and logits, and how much the noise of `kvbench verify --rerun` does.

One prompt is read with torch's own choice of kernels, with the plainest ones, and with its own kernels and embedded
tokens disturbed as `kvbench.runner.verify.rerun_answers.noise` does. Changes are root mean squares over those of the
values.
"""

import os
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from multiprocessing import get_context

import torch
from torch import Tensor

from kvbench.methods import FullKV
from kvbench.prefill import prefill
from kvbench.runner.verify.rerun_answers import NOISE, ROUNDINGS, noise
from scripts.benchmarks.measure_cut_rounding import PLAIN
from scripts.embedded import embedded_model, needle_prompt
from scripts.frame import arguments, tell

DTYPES = (torch.float32, torch.bfloat16)
State = dict[str, Tensor]  # keys of the last layer, last logits


@torch.inference_mode()
def measure(length: int, disturbed: int) -> dict[str, list[State]]:
    """By dtype the states without noise and with each of `disturbed` draws of it."""
    loaded = embedded_model()
    ids = needle_prompt(loaded, length)
    by_dtype = {}
    for dtype in DTYPES:
        loaded.model.to(dtype)
        states = []
        for number in range(disturbed + 1):
            with noise(loaded, number) if number else nullcontext():
                state = prefill(loaded.model, ids, FullKV().needs)
            states.append({"keys": state.layers[-1].keys.float(), "logits": state.logits.float()})
        by_dtype[str(dtype).removeprefix("torch.")] = states
    return by_dtype


def change(before: State, after: State) -> dict[str, float]:
    return {
        name: float((after[name] - before[name]).square().mean().sqrt() / before[name].square().mean().sqrt())
        for name in before
    }


def main() -> None:
    options = arguments(__doc__, length=1000)
    results = []
    for variables, disturbed in (({}, ROUNDINGS), (PLAIN, 0)):
        os.environ.update(variables)  # read when a process first computes
        with ProcessPoolExecutor(max_workers=1, mp_context=get_context("spawn")) as pool:
            results.append(pool.submit(measure, options.length, disturbed).result())
    usual, plain = results
    by_dtype = {
        dtype: {
            "noise": NOISE[getattr(torch, dtype)],
            "other_kernels": change(states[0], plain[dtype][0]),
            "by_noise": [change(states[0], state) for state in states[1:]],
        }
        for dtype, states in usual.items()
    }
    what = "root mean square of the change of the last layer's keys and of the last logits, over that of the values"
    tell({"what": what, "kernels": PLAIN, "length": options.length, "found": by_dtype}, options.json)


if __name__ == "__main__":
    main()
