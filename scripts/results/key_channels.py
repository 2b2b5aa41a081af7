"""Why do formats break on one model and not on another? Its keys' channels, and what is left of attention and answers.

python -m scripts.results.key_channels [--models smollm2-135m qwen2.5-coder-0.5b qwen2.5-coder-1.5b] [--samples 10]

Each needle of 4,096 tokens (of scripts.results.leaderboard_qwen, question visible) is prefilled once in bfloat16, and
its cache is stored in each format in three ways:

as it is         keys and values
less the means   keys without the mean of each channel over the prompt, which is added when they are read: it adds the
                 same to all logits of a query, so that exact attention is the same with and without it
values alone     keys as they are

`attention` is how far the attention of the last 16 queries moves: the total variation (0: none of it, 1: all of it),
mean of the heads, queries and layers; `furthest` is that of the layer in which it moves most. `digits` is the share of
leading digits of the number that are recited. `spread` and `means` are the probes key_spread and key_means. Samples
that the files have are not made again.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import torch
from torch import Tensor

from kvbench.benchmarks import Benchmark, Sample
from kvbench.cache.dense import DenseLayer
from kvbench.cache.sequence import SequenceLayer
from kvbench.configuration import configured
from kvbench.evaluation.decode import batched, decode
from kvbench.evaluation.settings import settings_of
from kvbench.methods.base.method import Method
from kvbench.metrics.bootstrap import interval
from kvbench.models import LoadedModel, load
from kvbench.ops.attention import window_attention
from kvbench.prefill import Needs, PrefillState, prefill
from kvbench.probes import ChannelMeans, ChannelSpread
from kvbench.report.tables.text_table import TextTable, number
from kvbench.utils.files import write_atomically
from kvbench.utils.targets import build
from scripts.frame import provenance, script_parser, write
from scripts.results.leaderboard_qwen import needles

MODELS = ["smollm2-135m", "qwen2.5-coder-0.5b", "qwen2.5-coder-1.5b"]
LENGTH, TOKENS, QUERIES = 4096, 16, 16
FORMATS = "fp8_token ggml_q8_0 ggml_q4_0 nvfp4 turboquant_4 kivi kvquant_3 kvtc_3".split()
FULL = "full"
WAYS = ["as it is", "less the means", "values alone"]
COLUMNS = ["model", "format", "way", "sample", "attention", "furthest", "digits"]


class Prompt(NamedTuple):
    loaded: LoadedModel
    benchmark: Benchmark
    methods: dict[str, Method]  # FullKV, and it in each format
    sample: Sample
    state: PrefillState


def prompts(model: str, count: int, without: set[str]) -> Iterator[Prompt]:
    """The first `count` needles with the states behind them, but those `without`."""
    part = needles(LENGTH, "visible", count)
    overrides = [f"method=[{','.join([FULL, *FORMATS])}]", f"model={model}", "model.dtype=bfloat16", *part.overrides]
    configuration = configured(overrides)
    methods = {setting.name: setting.method for setting in settings_of(configuration)}
    loaded = load(configuration.model)
    benchmark = build(configuration.benchmark, "benchmark", Benchmark)
    needs = Needs(window=QUERIES)
    for method in methods.values():
        needs |= method.needs
    for sample in benchmark.samples(loaded.tokenizer)[:count]:
        if sample.id not in without:
            state = prefill(loaded.model, loaded.encode(sample.prompt, sample.chat), needs)
            yield Prompt(loaded, benchmark, methods, sample, state)


def means(state: PrefillState) -> list[Tensor]:
    """Of each layer's keys: float32 [num_key_value_heads, 1, head_dim], over the tokens."""
    return [layer.keys.float().mean(1, keepdim=True) for layer in state.layers]


def less(state: PrefillState, offsets: list[Tensor]) -> PrefillState:
    layers = [
        replace(layer, keys=(layer.keys.float() - offset).to(layer.keys.dtype))
        for layer, offset in zip(state.layers, offsets, strict=True)
    ]
    return replace(state, layers=layers)


def restoring(method: Method, state: PrefillState) -> list[SequenceLayer]:
    """The caches of layers of which single keys and values can be read."""
    return [cache for cache in method.compress(state, state.n) if isinstance(cache, SequenceLayer)]


def in_ways(state: PrefillState, method: Method) -> list[list[DenseLayer]]:
    """For each of WAYS the dense caches of what a format restores."""
    offsets = means(state)
    plain, centred = (restoring(method, each) for each in (state, less(state, offsets)))
    ways: list[list[DenseLayer]] = [[], [], []]
    for layer, cache, other, offset in zip(state.layers, plain, centred, offsets, strict=True):
        read = (other.k.read().float() + offset).to(layer.keys.dtype)
        for way, keys in zip(ways, (cache.k.read(), read, layer.keys), strict=True):
            way.append(DenseLayer(keys, cache.v.read(), cache.seen, cache.kept))
    return ways


def moved(caches: Sequence[Any], state: PrefillState) -> list[float]:
    """By layer, the total variation of the last queries' attention from that to the keys as they are."""
    moves = []
    for cache, layer in zip(caches, state.layers, strict=True):
        exact, other = (window_attention(layer.queries, keys, layer.scaling) for keys in (layer.keys, cache.k.view[0]))
        moves.append(float((exact - other).abs().sum(-1).mean()) / 2)
    return moves


@torch.inference_mode()
def of_prompt(prompt: Prompt) -> list[dict[str, Any]]:
    """A row for each format and way; all of them decode as one batch, FullKV first."""
    loaded, state = prompt.loaded, prompt.state
    names = [(FULL, WAYS[0])]
    caches: list[list[Any]] = [prompt.methods[FULL].compress(state, state.n)]
    for name in FORMATS:
        names += [(name, way) for way in WAYS]
        caches += in_ways(state, prompt.methods[name])
    moves = [moved(each, state) for each in caches]
    first = state.logits.expand(len(caches), -1)
    outputs = decode(loaded.model, batched(caches), first, TOKENS, loaded.stop_tokens)
    texts = [loaded.tokenizer.decode(output.tokens, skip_special_tokens=True) for output in outputs]
    return [
        {
            "format": name,
            "way": way,
            "attention": sum(layers) / len(layers),
            "furthest": max(layers),
            "digits": prompt.benchmark.score(prompt.sample, text)["digits"],
        }
        for (name, way), layers, text in zip(names, moves, texts, strict=True)
    ]


def channels(state: PrefillState) -> list[dict[str, Any]]:
    """A row for each layer and head."""
    rows = []
    for index, layer in enumerate(state.layers):
        spread, means = (probe.observe(layer, state.n).tolist() for probe in (ChannelSpread(), ChannelMeans()))
        rows += [
            {"layer": index, "head": head, "spread": spread[head], "means": means[head]}
            for head in range(layer.num_key_value_heads)
        ]
    return rows


def table(answers: pd.DataFrame, keys: pd.DataFrame) -> TextTable:
    models = [model for model in MODELS if model in set(answers["model"])]
    rows = []
    for name in [FULL, *FORMATS]:
        for model in models:
            of_format = answers[(answers["model"] == model) & (answers["format"] == name)]
            plain, centred, values = (of_format[of_format["way"] == way] for way in WAYS)
            if name == FULL:
                rows.append([name, model, "", told(plain), "", "", ""])
            else:
                digits = [told(each) for each in (plain, centred, values)]
                rows.append([name, model, far(plain), digits[0], far(centred), *digits[1:]])
    header = ["format", "model", "attention", "digits", "attention, less the means", "digits, less the means"]
    notes = [
        "attention: by how much that of the last queries moves in the layer in which it moves most, mean of the "
        "prompts; digits: share of the number's leading digits, with 95 % intervals",
        *(note(model, answers[answers["model"] == model], keys[keys["model"] == model]) for model in models),
    ]
    title = "Formats of the whole cache, and with keys less their channels' means"
    return TextTable([*header, "digits, values alone"], rows, title, notes)


def note(model: str, answers: pd.DataFrame, keys: pd.DataFrame) -> str:
    """Of the keys' channels, by layers' heads."""
    heads = keys.groupby(["layer", "head"])[["spread", "means"]].mean()
    typical, largest = heads["spread"].median(), heads.nlargest(3, "spread")
    places = ", ".join(
        f"{row['spread']:.0f} times in layer {layer} head {head} (means: {100 * row['means']:.2f} % of the squares)"
        for (layer, head), row in largest.iterrows()
    )
    return (
        f"{model}: {answers['sample'].nunique()} prompts. The largest channel is {typical:.1f} times the median one in "
        f"the median of the heads, and {places}"
    )


def far(rows: pd.DataFrame) -> str:
    return number(rows["furthest"].mean())


def told(rows: pd.DataFrame) -> str:
    low, high = interval(rows["digits"].tolist())
    return f"{number(rows['digits'].mean())} [{low:.2f}, {high:.2f}]"


def read(file: Path, columns: list[str]) -> pd.DataFrame:
    return pd.read_csv(file) if file.exists() else pd.DataFrame(columns=columns)


def main() -> None:
    parser = script_parser(__doc__)
    parser.add_argument("--models", nargs="+", default=MODELS, choices=MODELS)
    parser.add_argument("--samples", type=int, default=10)
    parser.add_argument("--out", type=Path, default=Path("results/formats/key_channels"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    files = [options.out / "answers.csv", options.out / "channels.csv"]
    answers, keys = read(files[0], COLUMNS), read(files[1], ["model", "sample", "layer", "head", "spread", "means"])
    for model in options.models:
        done = {*answers[answers["model"] == model]["sample"]}
        for prompt in prompts(model, options.samples, done):
            of = {"model": model, "sample": prompt.sample.id}
            answers = pd.concat([answers, pd.DataFrame([of | row for row in of_prompt(prompt)])])
            keys = pd.concat([keys, pd.DataFrame([of | row for row in channels(prompt.state)])])
            for frame, file in zip((answers, keys), files, strict=True):
                write_atomically(file, frame.to_csv(index=False, float_format="%.6g", lineterminator="\n"))
            print(f"{model}: {prompt.sample.id}", flush=True)
    write(
        {name: version(name) for name in ("kvbench", "torch", "transformers")} | provenance(),
        options.out / "provenance.json",
    )
    shown = table(*(pd.read_csv(file) for file in files)).markdown()
    write_atomically(options.out / "key_channels.md", shown)
    print(shown)


if __name__ == "__main__":
    main()
