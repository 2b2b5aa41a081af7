"""Probes with one number per head: mean and spread by layer, as a frame and as a figure."""

import json
from collections.abc import Mapping
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from kvbench.report.figures.style import THRESHOLD, grid_lines, halves, line_styles, new_figure, panels, rows_of

# Quantiles over heads and samples that bound the band.
LOW, HIGH = 0.1, 0.9


def by_layer(records: pd.DataFrame) -> pd.DataFrame:
    """One row per probe and layer: mean over heads and samples, their quantiles LOW and HIGH, and the numbers of both.

    `records` are of probes whose values are [layers, heads].
    """
    rows = []
    for probe, group in records.groupby("probe", sort=False):
        heads = pd.DataFrame(
            [
                (layer, value)
                for layers, values in zip(group["layers"], group["values"], strict=True)
                for layer, of_layer in zip(layers, values, strict=True)
                for value in of_layer
            ],
            columns=["layer", "value"],
        )
        for layer, values in heads.groupby("layer")["value"]:
            rows.append(
                {
                    "probe": probe,
                    "layer": layer,
                    "mean": values.mean(),
                    "low": values.quantile(LOW),
                    "high": values.quantile(HIGH),
                    "heads": len(values) // len(group),
                    "samples": len(group),
                }
            )
    return pd.DataFrame(rows)


def layer_lines(records: pd.DataFrame, caption: str) -> Figure:
    """A panel per probe: mean by layer, a band for the spread over heads and samples, the probe's threshold."""
    frame = by_layer(records)
    probes = list(frame["probe"].unique())
    columns = min(len(probes), 3)
    spread = f"Band: {LOW:.0%} to {HIGH:.0%} of heads and samples."
    figure, body = new_figure(4 * columns + 0.3, 2.9 * rows_of(len(probes), columns) + 0.2, f"{caption}. {spread}")
    axes = panels(body, columns, len(probes))
    for axis, (probe, style) in zip(axes, line_styles(probes).items(), strict=True):
        of_probe = records[records["probe"] == probe].iloc[0]
        _draw(axis, frame[frame["probe"] == probe], style, probe)
        _threshold(axis, json.loads(of_probe["parameters"]))
        axis.set_ylabel("\n".join(halves(of_probe["quantity"])), fontsize=8)
    return figure


def _draw(axis: Axes, frame: pd.DataFrame, style: Mapping[str, Any], probe: str) -> None:
    axis.fill_between(frame["layer"], frame["low"], frame["high"], color="0.85", linewidth=0)
    axis.plot(frame["layer"], frame["mean"], **style, markersize=3.5, linewidth=1.2)
    axis.set_title(probe, fontsize=9)
    axis.set_xlabel("layer", fontsize=9)
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    if 0 < frame["low"].min() < frame["high"].max() / 2:
        axis.set_ylim(bottom=0)
    grid_lines(axis)


def _threshold(axis: Axes, parameters: Mapping[str, Any]) -> None:
    """A line at SimLayerKV's delta, where the probe has one."""
    if (delta := parameters.get("delta")) is not None:
        axis.axhline(delta, **THRESHOLD, label=f"delta {delta:g}: lazy above")
        axis.legend(fontsize=7)
