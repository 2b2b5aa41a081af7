"""Why do formats break on one model and not on another? Its keys' channels, and what is left of attention and answers.

python -m scripts.results.key_channels [--models smollm2-135m qwen2.5-coder-0.5b qwen2.5-coder-1.5b] [--samples 10]

Each needle of 4,096 tokens (of scripts.results.leaderboard_qwen, question visible) is prefilled once in bfloat16, and
its cache is stored in each format in three ways:

as it is         all tokens, also those that are decoded
prompt alone     decoded tokens are not in the format
less the means   keys, also those of decoded tokens, without the mean of each channel over the prompt. It adds the same
                 to all logits of a query: attention to exact keys is the same with and without it

`attention` is how far the attention of the prompt's last 16 queries moves: the total variation (0: none of it, 1: all
of it), mean of the heads, queries and layers; `furthest` is that of the layer in which it moves most. `digits` is the
share of leading digits of the number that are recited. `spread` and `means` are the probes key_spread and key_means.
Samples that the files have are not made again.
"""

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import torch
from torch import Tensor

from kvbench.benchmarks import Benchmark, Sample
from kvbench.cache.batch import BatchCache
from kvbench.cache.sequence import SequenceLayer
from kvbench.configuration import configured
from kvbench.errors import on_disk
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
from scripts.frame import at_least_1, provenance, script_parser, until_stopped, write
from scripts.results.formats import decoded
from scripts.results.leaderboard_qwen import needles

MODELS = ["smollm2-135m", "qwen2.5-coder-0.5b", "qwen2.5-coder-1.5b"]
LENGTH, TOKENS, QUERIES = 4096, 16, 16
FORMATS = "fp8_token ggml_q8_0 ggml_q4_0 nvfp4 turboquant_4 kivi kvquant_3 kvtc_3".split()
FULL = "full"
PLAIN, ALONE, CENTRED = WAYS = ["as it is", "prompt alone", "less the means"]
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


def restored(cache: SequenceLayer, offset: Tensor | None = None) -> Tensor:
    """The keys that a cache restores [num_key_value_heads, n, head_dim], and an offset that was taken from them."""
    keys = cache.k.read()
    return keys if offset is None else (keys.float() + offset).to(keys.dtype)


def moved(keys: Sequence[Tensor], state: PrefillState) -> list[float]:
    """By layer, the total variation of the last queries' attention to these keys from that to the keys as they are."""
    moves = []
    for stored, layer in zip(keys, state.layers, strict=True):
        exact, other = (window_attention(layer.queries, each, layer.scaling) for each in (layer.keys, stored))
        moves.append(float((exact - other).abs().sum(-1).mean()) / 2)
    return moves


def centring(cache: BatchCache, offsets: Sequence[Tensor]) -> BatchCache:
    """The cache, which takes the offsets from all keys that it is given from now on."""
    for layer, offset in zip(cache.layers, offsets, strict=True):
        layer.append = partial(append_less, layer.append, offset)
    return cache


def append_less(append: Callable[[Tensor, Tensor], Any], offset: Tensor, keys: Tensor, values: Tensor) -> Any:
    return append((keys.float() - offset).to(keys.dtype), values)


@torch.inference_mode()
def of_prompt(prompt: Prompt) -> list[dict[str, Any]]:
    """A row for each format and way; the formats of a way decode as one batch."""
    state, offsets = prompt.state, means(prompt.state)
    without = less(state, offsets)
    plain = {name: prompt.methods[name].compress(state, state.n) for name in [FULL, *FORMATS]}
    centred = {name: prompt.methods[name].compress(without, state.n) for name in FORMATS}
    alone = {name: decoded(plain[name]) for name in FORMATS}
    moves = {(FULL, PLAIN): [0.0]}
    for name in FORMATS:
        moves[name, PLAIN] = moves[name, ALONE] = moved([restored(cache) for cache in plain[name]], state)
        keys = [restored(cache, offset) for cache, offset in zip(centred[name], offsets, strict=True)]
        moves[name, CENTRED] = moved(keys, state)
    digits = {}
    for way, caches in zip(WAYS, (plain, alone, centred), strict=True):
        cache = batched([*caches.values()])
        texts = answers_of(prompt, centring(cache, offsets) if way == CENTRED else cache)
        for name, text in zip(caches, texts, strict=True):
            digits[name, way] = prompt.benchmark.score(prompt.sample, text)["digits"]
    return [
        {
            "format": name,
            "way": way,
            "attention": sum(moves[name, way]) / len(moves[name, way]),
            "furthest": max(moves[name, way]),
            "digits": score,
        }
        for (name, way), score in sorted(digits.items(), key=lambda item: [FULL, *FORMATS].index(item[0][0]))
    ]


def answers_of(prompt: Prompt, cache: BatchCache) -> list[str]:
    loaded = prompt.loaded
    first = prompt.state.logits.expand(len(cache.sequences), -1)
    outputs = decode(loaded.model, cache, first, TOKENS, loaded.stop_tokens)
    return [loaded.tokenizer.decode(output.tokens, skip_special_tokens=True) for output in outputs]


def channels(state: PrefillState) -> list[dict[str, Any]]:
    """A row for each layer and head."""
    rows = []
    for index, layer in enumerate(state.layers):
        spread, shares = (probe.observe(layer, state.n).tolist() for probe in (ChannelSpread(), ChannelMeans()))
        rows += [
            {"layer": index, "head": head, "spread": spread[head], "means": shares[head]}
            for head in range(layer.num_key_value_heads)
        ]
    return rows


def table(answers: pd.DataFrame, keys: pd.DataFrame) -> TextTable:
    models = [model for model in MODELS if model in set(answers["model"])]
    rows = []
    for name in [FULL, *FORMATS]:
        for model in models:
            of_format = answers[(answers["model"] == model) & (answers["format"] == name)]
            plain, alone, centred = (of_format[of_format["way"] == way] for way in WAYS)
            if name == FULL:
                rows.append([name, model, "", told(plain), "", "", ""])
            else:
                rows.append([name, model, far(plain), told(plain), told(alone), far(centred), told(centred)])
    header = ["format", "model", "attention", "digits", "digits, prompt alone", "attention, less the means"]
    notes = [
        "attention: by how much that of the last queries moves in the layer in which it moves most, mean of the "
        "prompts; digits: share of the number's leading digits, with 95 % intervals",
        *(note(model, answers[answers["model"] == model], keys[keys["model"] == model]) for model in models),
    ]
    title = "Formats of the whole cache, and with keys less their channels' means"
    return TextTable([*header, "digits, less the means"], rows, title, notes)


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
    parser.add_argument("--samples", type=at_least_1, default=10)
    parser.add_argument("--out", type=Path, default=Path("results/formats/key_channels"))
    with until_stopped():
        measure(parser.parse_args())


def measure(options: argparse.Namespace) -> None:
    facts = {name: version(name) for name in ("kvbench", "torch", "transformers")} | provenance()
    with on_disk(f"write to {options.out}"):
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
    write(facts, options.out / "provenance.json")
    shown = table(*(pd.read_csv(file) for file in files)).markdown()
    write_atomically(options.out / "key_channels.md", shown)
    print(shown)


if __name__ == "__main__":
    main()
