"""What kvbench launches on a GPU: operations, kernels and waits per layer, counted on a machine without one.

For every file of conf/method: one decoded token and the compression of a prompt. Then twelve settings decoding as one
batch over one alone, the prefill with H2O's column sums, and the scores of the last window. Models have 32 query heads,
8 KV heads and heads of 32 channels, in bfloat16; a count per layer is the difference between 4 layers and 2, over 2. It
is negative where a search (SpindleKV's) works on all layers at once and 4 layers take fewer tries than 2: what it
launches for a model of 32 layers, in all, is counted by itself.

Counted: calls into torch (operations); those of them that launch a kernel, composite functions taken apart (kernels; an
operator of kvbench counts what its Triton kernel launches); waits of the CPU for the GPU; blocking copies to the GPU
(uploads). tests/support/launches.py has the rules.
Not counted: how long a kernel takes, kernels that torch launches inside one of its own (sort, topk), the memory.
Counts depend on the versions of torch and transformers, not on the machine.
"""

import json
from pathlib import Path

import torch
import transformers

from kvbench.cache.base import LayerCache
from kvbench.cache.ragged import RaggedLayer
from kvbench.evaluation.settings import Setting, build_settings
from kvbench.methods import FullKV
from kvbench.methods.heads.head_scores import calibrations
from kvbench.methods.selection import Selection
from kvbench.ops.operator import LAUNCHES
from kvbench.prefill import LayerState, Needs, PrefillState
from kvbench.utils.environment import git_commit, now
from scripts.benchmarks.bench_shared_prefill import SETTINGS
from scripts.frame import script_parser
from tests.support import launch_counts as count
from tests.support.config import NAMES, method_configs
from tests.support.every_method import setting, small
from tests.support.launches import Counts

N = 160  # tokens of the prompt; windows are those of tests/support/every_method.py
BATCH_N = 512  # for twelve settings, whose windows are the published ones
# without those that read a calibration file, which is of one number of layers
COUNTED = [name for name in NAMES if not list(calibrations(setting(name).method))]
RATIO = 0.3
SUMS_N = (256, 1024)
SEARCH_LAYERS, SEARCH_RATIO = 32, 0.2
# What no preset chooses.
VARIANTS = {
    "snapkv_paper, storage.layout=union": ("snapkv_paper", "storage.layout=union"),
    "h2o, decode=update": ("h2o", "decode=update"),
    "streaming_llm, decode=evict rope=rolling": ("streaming_llm", "decode=evict", "rope=rolling"),
}


class Ragged(FullKV):
    """Tokens dropped at the end of each KV head, another number in each: what AdaKV's budgets come to."""

    def compress(self, state: PrefillState, budget: int) -> list[LayerCache]:
        return [self.compress_layer(layer, i, len(state.layers), budget) for i, layer in enumerate(state.layers)]

    def compress_layer(self, layer: LayerState, index: int, num_layers: int, budget: int) -> LayerCache:
        places = torch.arange(layer.n, device=layer.keys.device)
        ends = layer.n - 3 * torch.arange(layer.num_key_value_heads, device=layer.keys.device)
        kept = Selection.everything(layer).kept(layer)
        return RaggedLayer(layer.keys, layer.values, places < ends[:, None], layer.seen, kept)


def of_presets(names: list[str]) -> dict:
    """Every preset and variant; and a cache with a length of its own for each head."""
    variants = {} if names != COUNTED else {label: variant(*parts) for label, parts in VARIANTS.items()}
    settings = {name: setting(name, ratio=RATIO) for name in names} | variants
    settings["ragged"] = Setting("ragged", Ragged(), "")
    return {name: of_setting(name, preset) for name, preset in settings.items()}


def variant(name: str, *changes: str) -> Setting:
    config = small(method_configs(name, overrides=tuple(f"method.{name}.{change}" for change in changes))[name])
    return build_settings({name: config}, RATIO, None)[0]


def of_setting(name: str, preset: Setting) -> dict:
    token, mean = count.decoding_per_layer(N, lambda layers: [(preset.method, preset.budget_at(N, layers))], name)
    compressed = count.per_layer(lambda model: count.compression_counts(preset, model, N), name)
    print(name, row(token), "| compression", row(compressed), flush=True)
    return {"decode": numbers_of(token), "decode_mean": numbers_of(mean), "compress": numbers_of(compressed)}


def of_a_search() -> dict:
    """SpindleKV's compression of all layers of a model, which it works on at once, with its search and without."""
    model = count.counted_model(SEARCH_LAYERS)
    made = {"layers": SEARCH_LAYERS, "tokens": N, "ratio": SEARCH_RATIO}
    settings = {name: setting(name, ratio=SEARCH_RATIO) for name in ("spindlekv_paper", "spindle")}
    count.compression_counts(settings["spindlekv_paper"], model, N)  # makes the model's table of rotations
    for name, preset in settings.items():
        counts = count.compression_counts(preset, model, N)
        made[name] = numbers_of(counts) | {
            "tries": whole(counts.names["greedy_covers"] / (2 * LAUNCHES["greedy_covers"]))
        }
    return made


def of_a_batch() -> dict:
    """A step of twelve settings as one batch, over a step of FullKV alone and over the mean of the twelve alone."""
    every = [(method, int(ratio * BATCH_N)) for _, method, ratio in SETTINGS]
    batch, _ = count.decoding_per_layer(BATCH_N, lambda _: every)
    full, _ = count.decoding_per_layer(BATCH_N, lambda _: [(FullKV(), BATCH_N)])
    alone = count.mean_of([count.decoding_per_layer(BATCH_N, lambda _, pair=pair: [pair])[0] for pair in every])
    return {
        "settings": [f"{name} {ratio:g}" for name, _, ratio in SETTINGS],
        "batch": numbers_of(batch),
        "full_alone": numbers_of(full),
        "mean_alone": numbers_of(alone),
        "kernels_over_full": round(batch.kernels / full.kernels, 2),
        "kernels_over_mean_alone": round(batch.kernels / alone.kernels, 2),
        "operations_over_full": round(batch.operations / full.operations, 2),
    }


def of_prefill() -> dict:
    """The prefill without observations, and what column sums add to it."""
    made = {}
    for n in SUMS_N:
        plain, sums = (
            count.per_layer(lambda model, needs=needs, n=n: count.prefill_counts(model, n, needs))
            for needs in (Needs(), Needs(column_sums=True))
        )
        made[f"n={n}"] = {"plain": numbers_of(plain), "column_sums_add": numbers_of(sums - plain)}
    return made


def numbers_of(counts: Counts) -> dict:
    return dict(zip(("operations", "kernels", "waits", "uploads"), map(whole, counts.numbers()), strict=True))


def row(counts: Counts) -> str:
    return " ".join(f"{key} {value}" for key, value in numbers_of(counts).items())


def whole(value: float) -> int | float:
    return int(value) if value == int(value) else round(value, 1)


def main() -> None:
    parser = script_parser(__doc__)
    parser.add_argument("names", nargs="*", default=COUNTED, help="files of conf/method; all")
    parser.add_argument("--json", type=Path, help="write the counts to this file")
    parser.add_argument("--as", dest="label", default="after", help="the name of these counts in the file")
    options = parser.parse_args()
    transformers.logging.set_verbosity_error()
    counts = {
        "git": git_commit(),
        "made": now(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "presets": of_presets(options.names),
        "search": of_a_search(),
        "twelve_settings": of_a_batch(),
        "prefill": of_prefill(),
        "window_scores": numbers_of(count.per_layer(lambda model: count.window_counts(model, N))),
    }
    text = json.dumps({key: value for key, value in counts.items() if key != "presets"}, indent=2)
    print(text)
    if options.json:
        kept = json.loads(options.json.read_text()) if options.json.exists() else {"what": __doc__.splitlines()[0]}
        options.json.write_text(json.dumps(kept | {options.label: counts}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
