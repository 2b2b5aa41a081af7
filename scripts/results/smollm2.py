"""The papers' observations in small, on the embedded model: `python -m scripts.results.smollm2 EXPERIMENT…`.

    similarity   SpindleKV figure 3: similar vectors and sparse attention, by layer
    unfolding    SpindleKV table 2: query heads unfolded against averaged
    magnitudes   SpindleKV table 6: with and without the original magnitudes
    lazy         SimLayerKV figure 5: threshold against score
    needles      needle grids of all methods at about equal r_bytes

Each writes its table, figures and manifest to results/smollm2/EXPERIMENT (--out names another folder than
results/smollm2). Records stay in runs/smollm2, so a stopped run goes on where it was. The methods that observe a
window of the last queries have the same one, but PyramidInfer, whose window is a share of the prompt, and lazy.
"""

import argparse
import hashlib
import json
import os
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd
import torch

from kvbench.configuration import Configuration, configured
from kvbench.errors import UserError
from kvbench.methods.spindlekv.ops.greedy_cover import greedy_cover
from kvbench.models.folder import model_identity
from kvbench.prefill import Needs, prefill
from kvbench.report.figures.style import save
from kvbench.runner import run as command
from kvbench.utils.environment import environment, now
from scripts.embedded import HAYSTACK_HELP, embedded_model, text_tokens, text_told
from scripts.frame import script_parser, until_stopped
from scripts.results.kept_files import keep
from scripts.results.one_window import one_window, overrides_of

ROOT = Path(__file__).parents[2]
GRID = ["benchmark.lengths=[1024,2048]", "benchmark.depths=[0,25,50,75,100]", "benchmark.seeds=4"]
# Of the last queries that are observed, as in the project's demo; and in similarity.
WINDOW, OBSERVED = 8, 32


def with_methods(*names: str) -> Configuration:
    """The command's configuration with these methods, at the grid of needles that all experiments share."""
    return configured([f"method=[{','.join(names)}]", *GRID, *overrides_of(names, one_window(WINDOW))])


def variant(config: dict, **changes) -> dict:
    return config | changes


def run(target: Path, methods: dict[str, dict], ratio: object, base: Configuration) -> None:
    """Run methods as the command would, and keep what it made of them.

    Each experiment has a folder of its own: tables show all records of a folder.
    """
    folder = command.run(base.changed(method=methods, ratio=ratio, output_dir=f"runs/smollm2/{target.name}"))
    keep(folder, target, ["table.md", "table.csv", "heatmap.png", "score.png", "score.pdf"])


def similarity(target: Path, options: argparse.Namespace) -> None:
    if options.tokens <= OBSERVED:
        raise UserError(f"--tokens {options.tokens} must be more than the {OBSERVED} whose attention is observed")
    model = embedded_model()
    ids = text_tokens(model, options.tokens, options.haystack_dir)
    with torch.inference_mode():
        state = prefill(model.model, ids, Needs(window=OBSERVED))
        rows = []
        for index, layer in enumerate(state.layers):
            keys = layer.rope.rotate(layer.keys, -torch.arange(layer.n))
            votes = layer.window_votes(OBSERVED)[:, :-OBSERVED].sort(dim=-1, descending=True).values
            held = votes.cumsum(-1) / votes.sum(-1, keepdim=True)
            rows.append(
                {
                    "layer": index,
                    "keys above 0.9": above(keys, 0.9),
                    "values above 0.6": above(layer.values, 0.6),
                    "entries of keys at 0.98": entries(keys, 0.98),
                    "entries of values at 0.95": entries(layer.values, 0.95),
                    "tokens with 90 % of the attention": ((held < 0.9).sum(-1) + 1).float().mean().item()
                    / votes.shape[1],
                }
            )
    frame = pd.DataFrame(rows)
    target.mkdir(parents=True, exist_ok=True)
    frame.round(4).to_csv(target / "table.csv", index=False)
    what = text_told(options.haystack_dir)
    data = {"tokens": len(ids), "text": what, "tokens_sha256": hashlib.sha256(str(ids.tolist()).encode()).hexdigest()}
    manifest = {"made": now(), "model": model_identity(model.source, model.spec.revision), **data, **environment()}
    (target / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
    plot(target, f"SpindleKV figure 3 on smollm2-135m, mean over heads\n{len(ids)} tokens, {what}", frame)


def plot(target: Path, title: str, frame: pd.DataFrame) -> None:
    """A line per column over the layers, told apart by marker as well as by colour."""
    figure, axis = plt.subplots(figsize=(6, 3.6), layout="constrained")
    for column, marker in zip(frame.columns[1:], "osD^v", strict=True):
        axis.plot(frame["layer"], frame[column], marker=marker, markersize=4, linewidth=1.3, label=column)
    axis.set(xlabel="layer", ylabel="share", ylim=(-0.02, None))
    axis.set_title(title, fontsize=9)
    axis.grid(alpha=0.3)
    axis.legend(fontsize=8)
    save(figure, target / target.name)
    plt.close(figure)


def above(vectors: torch.Tensor, theta: float) -> float:
    """Share of token pairs with cosine above theta, mean over heads; vectors [heads, n, head_dim]."""
    units = torch.nn.functional.normalize(vectors.float(), dim=-1)
    n = units.shape[1]
    counts = [((unit @ unit.T > theta).sum() - n) / (n * (n - 1)) for unit in units]
    return torch.stack(counts).mean().item()


def entries(vectors: torch.Tensor, theta: float) -> float:
    """Codebook entries over vectors, mean over heads."""
    return sum(len(greedy_cover(head, theta).entries) / len(head) for head in vectors) / len(vectors)


def unfolding(target: Path, options: argparse.Namespace) -> None:
    base = with_methods("full", "spindle")
    spindle = base.method["spindle"]
    methods = {
        "full": base.method["full"],
        "spindle_unfolded": variant(spindle, repeat=True, control="exact", control_on="r_bytes"),
        "spindle_averaged": variant(spindle, repeat=False, control="exact", control_on="r_bytes"),
    }
    run(target, methods, [0.2, 0.3, 0.4], base)


def magnitudes(target: Path, options: argparse.Namespace) -> None:
    base = with_methods("full", "spindle")
    spindle = base.method["spindle"]
    methods = {
        "full": base.method["full"],
        "spindle_with": variant(spindle, repeat=False, reconstruct=True, control=None),
        "spindle_without": variant(spindle, repeat=False, reconstruct=False, control=None),
    }
    run(target, methods, [0.2, 0.3, 0.4], base)


def lazy(target: Path, options: argparse.Namespace) -> None:
    base = with_methods("full", "simlayerkv")
    lazily = variant(base.method["simlayerkv"], window=128, w_last=32)  # queries as many as in the paper
    deltas = [0.0, 0.2, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0]
    methods = {f"delta={delta:g}": variant(lazily, delta=delta) for delta in deltas}
    run(target, methods, 0.2, base)


def needles(target: Path, options: argparse.Namespace) -> None:
    names = [
        *("full", "streaming_llm", "h2o", "snapkv", "pyramidkv", "pyramidinfer", "simlayerkv", "pooling_merge"),
        *("squeeze", "spindle", "kivi", "minicache"),
    ]
    base = with_methods(*names)
    methods = base.method
    # per-layer windows of 1024 tokens would never bind at these lengths
    methods["simlayerkv"] |= {"delta": None, "window": 128}
    averaged = {"repeat": False, "control": "exact", "control_on": "r_bytes"}
    methods["spindle_averaged"] = methods.pop("spindle") | averaged
    run(target, methods, 0.3, base)


EXPERIMENTS = {f.__name__: f for f in (similarity, unfolding, magnitudes, lazy, needles)}


def main() -> None:
    parser = script_parser(__doc__)
    parser.add_argument("experiments", nargs="+", choices=[*EXPERIMENTS, "all"], metavar="EXPERIMENT")
    parser.add_argument("--haystack-dir", help=f"similarity: {HAYSTACK_HELP}")
    parser.add_argument("--tokens", type=int, default=2048, help="similarity: tokens of the prompt")
    parser.add_argument("--out", type=Path, default=Path("results/smollm2"), help="default: results/smollm2")
    options = parser.parse_args()
    os.chdir(ROOT)  # results and manifests name no folder of this machine
    with until_stopped():
        for name in EXPERIMENTS if "all" in options.experiments else options.experiments:
            print(f"== {name}", flush=True)
            EXPERIMENTS[name](options.out / name, options)


if __name__ == "__main__":
    main()
