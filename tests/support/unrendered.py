"""Figures that are built and saved, but not rendered: that takes longer than a tiny run makes its records."""

from pathlib import Path

from matplotlib.figure import Figure

from kvbench.report.figures import style

SIZE = 2**15  # bytes of a file: about those of a rendered one


def write_zeros(figure: Figure, path: Path, **options) -> None:
    Path(path).write_bytes(bytes(SIZE))


def render_nothing(monkeypatch) -> None:
    """For the rest of a test."""
    monkeypatch.setattr(Figure, "savefig", write_zeros)
    monkeypatch.setattr(style, "_fix_layout", lambda figure: None)
