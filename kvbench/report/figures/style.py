"""The style of all figures: marks that differ without colour, captions that are never cut off, atomic files."""

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.figure import Figure, SubFigure
from matplotlib.text import Text
from matplotlib.transforms import Bbox, ScaledTranslation, Transform

from kvbench.papers.colours import looks
from kvbench.utils.files import replacing

# The caption's size in points, the width of its letters and the height of its lines in inches; a figure's least width.
_CAPTION, _LETTER, _LINE, _NARROWEST = 8, 0.062, 0.135, 5.5
# Of a panel's title: its size in points, the width of its letters and the height of its lines in inches.
TITLE, TITLE_LETTER, TITLE_LINE = 9, 0.08, 0.16
_DPI = 150  # of a PNG, for which the layout is made: letters are wider at one resolution than at another
# Light to dark in grey as well as in colour.
SCALE = "cividis"
PUBLISHED: dict[str, Any] = {"color": "0.55", "linestyle": (0, (5, 2.5)), "linewidth": 1.2, "markerfacecolor": "white"}
ACROSS: dict[str, Any] = {"linewidth": 1.0, "linestyle": (0, (1, 1.5))}  # a line at FullKV's score
THRESHOLD: dict[str, Any] = {"color": "black", "linestyle": (0, (1, 1.5)), "linewidth": 1.2}

_SAME_PLACE = 0.005  # of an axis: intervals nearer than this would cover each other

# In the order of the page's marks (plot.js), so that a method's is the same.
_MARKERS = "osD^vPX<>*d"
_DASHES = ("-", (0, (4, 1.5)), (0, (1, 1)), (0, (6, 1.5, 1, 1.5)), (0, (8, 2)))
_HATCHES = ("", "////", "....", "\\\\\\\\", "xxxx", "----", "++++", "oo", "||||", "**")


def line_styles(names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """The colour and marker of each method, and dashes: marker and dashes alone distinguish any 55, of any colours."""
    return {
        name: {
            "color": look.colour or "black",
            "marker": _MARKERS[look.mark],
            "linestyle": _DASHES[(look.mark + look.turn) % len(_DASHES)],
        }
        for name, look in looks(names, len(_MARKERS)).items()
    }


def bar_styles(names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """The colour of each method, and a hatch that distinguishes any ten without it."""
    return {
        name: {
            "facecolor": look.colour or "0.85",
            "hatch": _HATCHES[look.mark],
            "edgecolor": "black",
            "linewidth": 0.6,
        }
        for name, look in looks(names, len(_HATCHES)).items()
    }


def new_figure(width: float, height: float, caption: str) -> tuple[Figure, SubFigure]:
    """A figure and its body, the part above the wrapped caption, of `width` × `height` inches.

    The width is at least _NARROWEST; the caption adds to the height.
    """
    width = max(width, _NARROWEST)
    lines = textwrap.wrap(caption, int((width - 0.2) / _LETTER))
    room = (len(lines) + 1) * _LINE
    figure = Figure(figsize=(width, height + room), dpi=_DPI, layout="constrained")
    parts: list[SubFigure] = figure.subfigures(2, 1, squeeze=False, height_ratios=[height, room])[:, 0].tolist()
    body, foot = parts
    foot.text(0.1 / width, 0.5 / (len(lines) + 1), "\n".join(lines), size=_CAPTION, va="bottom", linespacing=1.2)
    return figure, body


def panels(body: SubFigure, columns: int, count: int) -> list[Axes]:
    """So many axes, row by row in a grid of so many columns."""
    axes = list(body.subplots(rows_of(count, columns), columns, squeeze=False).flat)
    for axis in axes[count:]:
        axis.set_visible(False)
    return axes[:count]


def title_lines(title: str, width: float) -> str:
    """A title in lines that a panel so many inches wide has room for: settings may differ in their names' ends."""
    return "\n".join(textwrap.wrap(title, round(width / TITLE_LETTER)))


def rows_of(count: int, columns: int) -> int:
    return -(-count // columns)


def scale(body: SubFigure, image: ScalarMappable, axes: Sequence[Axes], label: str, **options: Any) -> None:
    """A labelled colour scale for all axes."""
    bar = body.colorbar(image, ax=axes, shrink=0.9, aspect=30, **options)
    bar.ax.tick_params(labelsize=8)
    bar.set_label("\n".join(halves(label)), fontsize=8)


def halves(text: str) -> list[str]:
    """A long label in two lines of about equal length."""
    words = text.split()
    if len(text) < 32:
        return [text]
    cut = min(range(1, len(words)), key=lambda i: abs(len(" ".join(words[:i])) - len(text) / 2))
    return [" ".join(words[:cut]), " ".join(words[cut:])]


def legend_below(body: SubFigure, handles: Sequence[Artist], width: float) -> None:
    """A legend under all axes of a figure so many inches wide, in as many columns as fit."""
    longest = max(len(str(handle.get_label())) for handle in handles)
    columns = max(1, min(len(handles), int(width / (0.55 + _LETTER * longest))))
    body.legend(handles=handles, loc="outside lower center", ncols=columns, fontsize=8, frameon=False)


def intervals(axis: Axes, points: pd.DataFrame, x: str, styles: Mapping[str, Mapping[str, Any]]) -> None:
    """The intervals of points of several lines, columns `x`, line, low and high (nan without an interval).

    Each stands at its point; those of points at about one x stand side by side there, in the order of `styles`.
    """
    known = points.dropna(subset=["low", "high"]).sort_values(x)
    apart = known[x].diff() > _SAME_PLACE * max(points[x].max() - min(points[x].min(), 0), 0)
    order = list(styles)
    for _, here in known.groupby(apart.cumsum()):
        here = here.sort_values("line", key=lambda lines: lines.map(order.index), kind="stable")
        for place, (_, point) in enumerate(here.iterrows()):
            moved = _moved(axis, place - (len(here) - 1) / 2)
            colour = styles[point["line"]]["color"]
            axis.vlines(point[x], point["low"], point["high"], colour, linewidth=0.9, zorder=2, transform=moved)
    axis.update_datalim([(point[x], point[end]) for end in ("low", "high") for _, point in points.iterrows()])
    axis.autoscale_view()


def _moved(axis: Axes, places: float) -> Transform:
    """The transform of the axis's data and a shift by so many bars."""
    figure = axis.get_figure(root=True)
    assert figure is not None, "new_figure made the axes"
    return axis.transData + ScaledTranslation(1.5 * places / 72, 0, figure.dpi_scale_trans)


def grid_lines(axis: Axes) -> None:
    axis.grid(color="0.85", linewidth=0.6)
    axis.set_axisbelow(True)
    axis.tick_params(labelsize=8)


def save(figure: Figure, path: Path) -> list[Path]:
    """Write PNG and PDF, each atomically; the same figure gives the same bytes, and a PDF's text can be searched.

    `path` has no suffix: a point in its name belongs to the name.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    written = [path.with_name(f"{path.name}.{suffix}") for suffix in ("png", "pdf")]
    metadata: dict[str, dict[str, Any] | None] = {"png": None, "pdf": {"CreationDate": None}}
    with mpl.rc_context({"pdf.fonttype": 42, "hatch.linewidth": 0.6, "text.parse_math": False}):
        for text in figure.findobj(Text):
            text.set_parse_math(False)  # names are data: a dollar sign begins no formula
            text.set_text(text.get_text().encode("utf-8", "replace").decode("utf-8"))  # lone surrogates
        _fix_layout(figure)
        for file in written:
            suffix = file.suffix[1:]
            with replacing(file) as work:
                figure.savefig(work, format=suffix, dpi=_DPI, metadata=metadata[suffix])
    return written


def _fix_layout(figure: Figure) -> None:
    """Compute the layout once and round it.

    The solver orders its terms by memory address, so its last digits differ from process to process.
    """
    figure.draw_without_rendering()
    figure.set_layout_engine(None)  # with "none", an engine that does nothing, savefig would draw twice
    for axis in figure.findobj(Axes):
        axis.set_position(Bbox.from_bounds(*map(_rounded, axis.get_position(original=True).bounds)))
    for part in figure.findobj(SubFigure):
        box = part.bbox_relative
        box.p0, box.p1 = tuple(map(_rounded, box.p0)), tuple(map(_rounded, box.p1))
    for each in (figure, *figure.findobj(SubFigure)):
        for text in each.texts:
            x, y = text.get_position()
            text.set_position((_rounded(x), _rounded(y)))


def _rounded(number: float) -> float:
    return round(number, 6)
