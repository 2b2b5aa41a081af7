"""`kvbench figure +experiment=NAME`: a published figure drawn again from records, beside its published values."""

from functools import partial

from kvbench.papers.command_line import run_command

HELP = """\
kvbench figure: the figures of an experiment from the records of its runs, beside the published values

  kvbench figure +experiment=NAME [OVERRIDES] [runs=FOLDER ...] [out=FOLDER]

  OVERRIDES    those of the runs: model=smollm2-135m benchmark.tasks=[qasper] ...
  runs=FOLDER  where to look for records: folders of runs or of one run; output_dir when not given
  out=FOLDER   where to write; figures in output_dir when not given
  experiment.show=KIND  another drawing of the same records: heatmap, curve (experiment.x=r), lazy_map, ...
  --config-dir FOLDER   more configuration, as for kvbench itself

Each model has its own figures, as PNG and PDF: what the experiment shows, and the sizes of its caches.
No model is loaded and nothing is run: what has no records is not drawn.

+experiment="""

main = partial(run_command, help_text=HELP, module="kvbench.figures.make")
