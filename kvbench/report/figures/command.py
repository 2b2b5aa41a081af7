"""`kvbench figure +experiment=NAME`: a published figure drawn again from records, beside its published values."""

from collections.abc import Sequence

from kvbench.papers.command_line import parser
from kvbench.utils.extras import require

ABOUT = (
    "Draw the figures of an experiment from the records of its runs, beside the published values. Each model has its "
    "own figures, as PNG and PDF: what the experiment shows, and the sizes of its caches. No model is loaded and "
    "nothing is run: settings without records are left out. experiment.show=KIND draws the same records in another "
    "way: heatmap, curve (experiment.x=r), lazy_map, ..."
)


def main(arguments: Sequence[str]) -> None:
    known = parser("figure", ABOUT)
    known.setting("out=FOLDER", "where to write; default: figures in output_dir")
    options = known.parse(arguments)
    require("this command", "matplotlib")

    from kvbench.report.figures.make import make  # brings pandas and torch

    make(options.overrides, options.runs, options.out)
