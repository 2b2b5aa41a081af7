"""What rounding alone changes of what `make gpu` compares of every preset.

Every preset compresses the same prefill state with torch's own choice of CPU kernels and, in another process, with the
plainest ones: kept sets, and the attention of one further token, as scripts/benchmarks/gpu/presets.py
compares a GPU with the CPU.
"""

import os
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from kvbench.ops.operator import use_kernels
from kvbench.ops.rope import Rope
from kvbench.prefill import PrefillState
from scripts.benchmarks.gpu import models, presets
from scripts.benchmarks.gpu.rows import Check, fitting, small
from scripts.benchmarks.measure_cut_rounding import PLAIN
from scripts.frame import arguments, tell
from tests.support.config import NAMES

CHECK = Check(dry_run=False)


@torch.inference_mode()
def first(name: str, file: Path) -> None:
    """Write a prefill state and the outputs of a preset's caches."""
    model, setting = small(CHECK, "cpu"), fitting(CHECK, name)
    state = models.prefilled(setting, model, CHECK.tokens)
    outputs = presets.seen(setting.method.compress(state, models.budget_of(setting, model, CHECK.tokens)), state)
    bare = [models.moved(replace(layer, rope=None)) for layer in state.layers]  # a rotation holds a part of the model
    torch.save((bare, outputs), file)


@torch.inference_mode()
def second(name: str, file: Path) -> dict:
    """How this process's caches of the written state differ from the first's; all operators are their references."""
    model, setting = small(CHECK, "cpu"), fitting(CHECK, name)
    layers, before = torch.load(file, weights_only=False)  # written by `first`
    state = PrefillState([replace(layer, rope=Rope.from_model(model)) for layer in layers], torch.zeros(0))
    with use_kernels("torch"):
        caches = setting.method.compress(state, models.budget_of(setting, model, CHECK.tokens))
        return presets.compared(before, presets.seen(caches, state))


def main() -> None:
    options = arguments(__doc__)
    pools = [ProcessPoolExecutor(max_workers=1, mp_context=get_context("spawn")) for _ in range(2)]
    differences = {}
    with TemporaryDirectory() as folder, pools[0], pools[1]:
        for name in NAMES:
            file = Path(folder) / "state.pt"
            pools[0].submit(first, name, file).result()
            os.environ.update(PLAIN)  # read when the second process starts
            differences[name] = pools[1].submit(second, name, file).result()
            print(name, differences[name], flush=True)
    result = {
        "what": "differences between two sets of CPU kernels, float32",
        "kernels": PLAIN,
        "prompt_tokens": CHECK.tokens,
        "presets": len(differences),
        "keep_other_tokens": [name for name, difference in differences.items() if not difference["kept_equal"]],
        "allowed": presets.OUTPUTS,
        "attend_otherwise": [
            name for name, difference in differences.items() if difference["outputs"] > presets.OUTPUTS
        ],
        "found": differences,
    }
    tell(result, options.json)


if __name__ == "__main__":
    main()
