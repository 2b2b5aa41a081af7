"""`python -m kvbench.figures +experiment=NAME`: a published figure made again from records, beside its numbers."""

import sys
from collections.abc import Sequence

from kvbench.tables.command import command

HELP = """\
kvbench.figures: the figures of an experiment from the records of its runs, beside the published numbers

  python -m kvbench.figures +experiment=NAME [OVERRIDES] [runs=FOLDER ...] [out=FOLDER]

  OVERRIDES    those of the runs: model=smollm2-135m benchmark.tasks=[qasper] ...
  runs=FOLDER  where to look for records: folders of runs or of one run; output_dir when not given
  out=FOLDER   where to write; figures in output_dir when not given
  experiment.show=KIND  another drawing of the same records: heatmap, curve (experiment.x=r), lazy_map, ...
  --config-dir=FOLDER   more configuration, as for kvbench itself

Every model has figures of its own, as PNG and PDF: what the experiment shows, and what its caches weigh.
No model is loaded and nothing is run: what has no record yet is not drawn.

+experiment="""


def main(arguments: Sequence[str]) -> None:
    command(arguments, HELP, "kvbench.figures.make")


if __name__ == "__main__":
    main(sys.argv[1:])
