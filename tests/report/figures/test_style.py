"""Marks, captions and files of figures."""

import numpy as np
import pandas as pd
import pytest
from matplotlib import colormaps
from matplotlib._layoutgrid import LayoutGrid
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox

from kvbench.report.figures.memory import memory_figure
from kvbench.report.figures.needle_heatmap import ink
from kvbench.report.figures.style import SCALE, bar_styles, line_styles, new_figure, save
from tests.support.figure_records import CAPTION, method_records
from tests.support.names import HOSTILE, SPECIAL

pytestmark = [pytest.mark.heavy, pytest.mark.usefixtures("rendered")]


def test_lines_and_bars_differ_without_colour():
    names = [f"method {i}" for i in range(55)]
    styles = line_styles(names)
    assert len({(style["marker"], str(style["linestyle"])) for style in styles.values()}) == 55
    assert len({style["hatch"] for style in bar_styles(names[:10]).values()}) == 10
    assert line_styles(["a", "b", "a"]).keys() == {"a", "b"}


def test_the_scale_of_maps_goes_from_dark_to_light():
    grey = colormaps[SCALE](np.linspace(0, 1, 256))[:, :3] @ (0.299, 0.587, 0.114)
    assert (np.diff(grey) > 0).all() and grey[0] < 0.2 and grey[-1] > 0.8
    assert (ink(0.0), ink(1.0)) == ("white", "black")


@pytest.mark.parametrize("width", [2, 6, 14])
def test_a_caption_is_wrapped_and_never_cut_off(width):
    figure, body = new_figure(width, 3, CAPTION)
    body.subplots().set_xlabel("x")
    figure.draw_without_rendering()
    (text,) = [item for item in figure.findobj(lambda x: hasattr(x, "get_text")) if "Paper" in item.get_text()]
    box, whole = text.get_window_extent(), figure.bbox
    assert whole.x0 <= box.x0 and box.x1 <= whole.x1 and whole.y0 <= box.y0
    axis = figure.axes[0].get_tightbbox()
    assert box.y1 <= axis.y0  # and it is printed over nothing
    assert " ".join(text.get_text().split()) == " ".join(CAPTION.split())


@pytest.mark.heavy
def test_the_same_figure_gives_the_same_bytes(tmp_path):
    for name in ("first", "second.5"):  # a point in a model's name is no suffix
        written = save(memory_figure(method_records(), CAPTION), tmp_path / name)
        assert [path.name for path in written] == [f"{name}.png", f"{name}.pdf"]
    for suffix in ("png", "pdf"):
        first, second = ((tmp_path / f"{name}.{suffix}").read_bytes() for name in ("first", "second.5"))
        assert first == second and len(first) > 5000
    assert b"CreationDate" not in first and b"/FontFile2" in first  # text that can be searched and edited


def test_the_last_digits_of_the_layout_do_not_reach_the_file(tmp_path, monkeypatch):
    """The layout's solver sums its terms in the order of memory addresses, which differ from process to process."""
    inner, outer = LayoutGrid.get_inner_bbox, LayoutGrid.get_outer_bbox
    files = []
    for noise in (1e-9, -1e-9, 0):
        for name, exact in (("get_inner_bbox", inner), ("get_outer_bbox", outer)):
            noisy = lambda *at, exact=exact, noise=noise, **kw: Bbox(exact(*at, **kw).get_points() * (1 + noise))  # noqa: E731
            monkeypatch.setattr(LayoutGrid, name, noisy)
        files.append([path.read_bytes() for path in save(memory_figure(method_records(), CAPTION), tmp_path / "one")])
    assert files[0] == files[1] == files[2]


def test_any_name_can_be_drawn(tmp_path):
    """A dollar sign begins no formula, and control characters and half characters are no error."""
    names = [name for name in SPECIAL if name.strip() and name.isascii()]
    every = [method_records().assign(setting=name, method=name) for name in names]
    png, pdf = save(
        memory_figure(pd.concat(every, ignore_index=True), f"{CAPTION} {' '.join(HOSTILE)}"), tmp_path / "one"
    )
    assert png.stat().st_size > 5000 and pdf.stat().st_size > 5000


def test_a_figure_that_cannot_be_written_leaves_the_earlier_one(tmp_path, monkeypatch):
    written = save(memory_figure(method_records(), CAPTION), tmp_path / "one")
    before = [path.read_bytes() for path in written]

    def full_disk(self, path, **_):
        path.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Figure, "savefig", full_disk)
    with pytest.raises(OSError, match="No space"):
        save(memory_figure(method_records(memory="stream"), CAPTION), tmp_path / "one")
    assert [path.read_bytes() for path in written] == before
    assert sorted(tmp_path.iterdir()) == sorted(written)
