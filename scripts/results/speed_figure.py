"""The figure of `speed_qwen.py`: tokens a second of prefill and decoding, and memory, by length."""

from pathlib import Path

import pandas as pd

from kvbench.report.figures.style import grid_lines, legend_below, line_styles, new_figure, panels, save

PANELS = {
    "prefill_tokens_per_s": ("prefill, tokens/s", 1),
    "decode_tokens_per_s": ("decoding, tokens/s", 1),
    "peak_rss_bytes": ("largest resident memory, GiB", 2**30),
}


def draw(frame: pd.DataFrame, path: Path, caption: str) -> None:
    """PNG and PDF at `path`, which has no suffix: a line for each setting, lengths along a logarithmic axis."""
    styles = line_styles(list(dict.fromkeys(frame["setting"])))
    figure, body = new_figure(3.5 * len(PANELS), 3.4, caption)
    axes = panels(body, len(PANELS), len(PANELS))
    lengths = sorted(frame["length"].unique())
    for axis, (name, (label, unit)) in zip(axes, PANELS.items(), strict=True):
        for setting, style in styles.items():
            rows = frame[frame["setting"] == setting].sort_values("length")
            axis.plot(rows["length"], rows[name] / unit, label=setting, markersize=5, **style)
        axis.set_xscale("log", base=2)
        axis.set_xticks(lengths, [f"{length:,}" for length in lengths])
        axis.minorticks_off()
        axis.set_ylim(0, 1.08 * frame[name].max() / unit)
        axis.set_title(label, fontsize=9)
        axis.set_xlabel("tokens", fontsize=8)
        grid_lines(axis)
    legend_below(body, axes[0].get_lines(), 3.5 * len(PANELS))
    save(figure, path)
