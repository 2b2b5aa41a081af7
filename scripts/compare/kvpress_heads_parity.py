"""Do AdaKV and CriticalKV keep the same tokens in kvbench and kvpress, given the same queries, keys and values?

In the folder and with the two environments of kvpress_parity.py, whose first step makes the prompts:

    python -m scripts.compare.kvpress_parity prompts FOLDER
    KVPRESS_ENV/bin/python -m scripts.compare.kvpress_heads_parity press FOLDER
    python -m scripts.compare.kvpress_heads_parity compare FOLDER

kvpress masks what these presses drop: their masks are read off the attention modules. See scripts/README.md.
"""

import json
from collections import defaultdict
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from scripts.compare.presses.cases import build_model, versions
from scripts.compare.presses.recording import read, seen_by_press
from scripts.frame import script_parser

REMOVED = (0.1, 0.3, 0.5, 0.7, 0.8)  # kvpress's compression_ratio; half of every budget holds the window of 32
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
# name: (shares between heads, two stages, over Expected Attention)
PRESSES = {
    "AdaKV, SnapKV": (True, False, False),
    "AdaKV, Expected Attention": (True, False, True),
    "CriticalKV, SnapKV": (False, True, False),
    "CriticalKV, Expected Attention": (False, True, True),
    "CriticalAdaKV, SnapKV": (True, True, False),
    "CriticalAdaKV, Expected Attention": (True, True, True),
}


def fits(n: int, removed: float) -> bool:
    return int(n * (1 - removed)) >= 2 * 32


def cases(folder: Path):
    """Each prompt with each dtype: the file of its tensors, the case and its model with SDPA attention."""
    for number, case in enumerate(json.loads((folder / "cases.json").read_text())):
        for name, dtype in DTYPES.items():
            model = build_model(case).to(dtype)
            model.set_attn_implementation("sdpa")
            yield folder / f"heads-{number}-{name}.safetensors", case, name, model


def build_press(adaptive: bool, critical: bool, expected: bool):
    import kvpress

    press = kvpress.SnapKVPress(window_size=32, kernel_size=7)
    if expected:
        press = kvpress.ExpectedAttentionPress(epsilon=0.01, use_vnorm=not critical)
    if critical:
        return kvpress.CriticalAdaKVPress(press) if adaptive else kvpress.CriticalKVPress(press)
    return kvpress.AdaKVPress(press)


@torch.inference_mode()
def press(folder: Path) -> None:
    """With kvpress: queries, keys, values and masks of kept tokens of every layer, one file per prompt and dtype."""
    for file, case, name, model in cases(folder):
        tensors, n = {}, len(case["ids"])

        def observe(module, args, kwargs, output, tensors=tensors, n=n):
            layer, hidden, keys, values, positions = seen_by_press(module, kwargs, tensors)
            for which, (adaptive, critical, expected) in PRESSES.items():
                for removed in REMOVED:
                    if not fits(n, removed):
                        continue
                    method = build_press(adaptive, critical, expected)
                    method.compression_ratio = removed
                    mask = torch.ones(keys.shape[1], n, dtype=torch.bool)
                    if adaptive:
                        method.compress(module, hidden, keys, values, None, kwargs)
                        _, heads, places = module.masked_key_indices
                        mask[heads, places], module.masked_key_indices = False, None
                    else:
                        scores = method.score(module, hidden, keys, values, None, kwargs)
                        method.score = lambda *args, scores=scores, **kwargs: scores
                        kept = method.compress(module, hidden, keys, positions, None, kwargs)[1][0, :, :, 0]
                        mask = torch.zeros_like(mask).scatter_(1, kept.long(), True)
                    tensors[f"{layer}/{which}/{removed}"] = mask

        read(model, case["ids"], observe)
        save_file({key: tensor.contiguous() for key, tensor in tensors.items()}, file)
        print(f"{case['model']}, {n} tokens, {name}", flush=True)
    (folder / "versions.json").write_text(json.dumps(versions("kvpress", "transformers", "torch")))


def build_method(adaptive: bool, critical: bool, expected: bool):
    """kvbench's counterpart of a press."""
    from kvbench.methods import AdaKV, CriticalKV, EqualHeads, Eviction, ExpectedAttention, WindowAttention

    scoring = WindowAttention(window=32, kernel=7, pooling="avg")
    if expected:
        scoring = ExpectedAttention(epsilon=0.01, value_norm=not critical)
    return Eviction(
        scoring=CriticalKV(scoring) if critical else scoring,
        heads=AdaKV(0.2, "hard") if adaptive else EqualHeads(),
    )


@torch.inference_mode()
def compare(folder: Path) -> None:
    """With kvbench: the same budgets on the same tensors; prints the table of scripts/README.md."""
    from kvbench.ops.rope import Rope
    from kvbench.prefill.value_output_norm import output_projections, value_output_norm
    from scripts.compare.kvpress_parity import build_state

    counts = defaultdict(lambda: [0, 0, 0, 0])
    for file, case, dtype, model in cases(folder):
        tensors, rope = load_file(file), Rope.from_model(model)
        weights = output_projections(model, range(model.config.num_hidden_layers))
        kind = "SmolLM2" if case["folder"] else "tiny"
        for layer, weight in enumerate(weights):
            state = build_state(tensors, layer, rope)
            state.value_output_norm = value_output_norm(state.values, weight)
            for name, parts in PRESSES.items():
                for removed in REMOVED:
                    theirs = tensors.get(f"{layer}/{name}/{removed}")
                    if theirs is None:
                        continue
                    budget = int(theirs.sum()) // len(theirs)
                    ours = build_method(*parts).select(state, layer, len(weights), budget).mask(state)[:, 0]
                    row = counts[name, kind, dtype]
                    row[0] += len(ours)
                    row[1] += int((ours == theirs).all(1).sum())
                    row[2] += int((ours & ~theirs).sum())
                    row[3] += int(theirs.sum())
    print("| setting | model | dtype | sets of layer and head | equal sets | tokens exchanged | of |")
    print("|---|---|---|---|---|---|---|")
    for key, row in counts.items():
        print("|", " | ".join(map(str, [*key, *row])), "|")
    print("kvpress side:", json.loads((folder / "versions.json").read_text()))
    print("kvbench side:", versions("kvbench", "transformers", "torch"))


def main() -> None:
    steps = {"press": press, "compare": compare}
    parser = script_parser(__doc__)
    parser.add_argument("step", choices=steps)
    parser.add_argument("folder", type=Path, help="where kvpress_parity.py left its prompts")
    arguments = parser.parse_args()
    steps[arguments.step](arguments.folder)


if __name__ == "__main__":
    main()
