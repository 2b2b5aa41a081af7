"""`kvbench figure +experiment=NAME`: a published figure made again from records, beside its published values."""

from collections.abc import Sequence

from kvbench.papers.command import printed_help, split

HELP = """\
kvbench figure: the figures of an experiment from the records of its runs, beside the published numbers

  kvbench figure +experiment=NAME [OVERRIDES] [runs=FOLDER ...] [out=FOLDER]

  OVERRIDES    those of the runs: model=smollm2-135m benchmark.tasks=[qasper] ...
  runs=FOLDER  where to look for records: folders of runs or of one run; output_dir when not given
  out=FOLDER   where to write; figures in output_dir when not given
  experiment.show=KIND  another drawing of the same records: heatmap, curve (experiment.x=r), lazy_map, ...
  --config-dir=FOLDER   more configuration, as for kvbench itself

Every model has figures of its own, as PNG and PDF: what the experiment shows, and what its caches weigh.
No model is loaded and nothing is run: what has no record yet is not drawn.

+experiment="""


def main(arguments: Sequence[str]) -> None:
    if printed_help(arguments, HELP):
        return
    from kvbench.figures.make import make  # brings pandas and torch, which --help need not wait for

    make(*split(arguments))
