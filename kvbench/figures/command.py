"""`kvbench figure +experiment=NAME`: a published figure drawn again from records, beside its published values."""

from functools import partial

from kvbench.papers.command_line import run_command

HELP = """\
usage: kvbench figure +experiment=NAME [KEY=VALUE ...] [runs=FOLDER ...] [out=FOLDER]

Draw the figures of an experiment from the records of its runs, beside the published values. Each model has its own
figures, as PNG and PDF: what the experiment shows, and the sizes of its caches. No model is loaded and nothing is run:
settings without records are left out.

arguments:
  KEY=VALUE             overrides of the runs: model=smollm2-135m benchmark.tasks=[qasper] ...
  runs=FOLDER           where to look for records: folders of runs or of one run; default: output_dir
  out=FOLDER            where to write; default: figures in output_dir
  experiment.show=KIND  draw the same records in another way: heatmap, curve (experiment.x=r), lazy_map, ...
  --config-dir FOLDER   more configuration, as for kvbench itself

experiments:"""

main = partial(run_command, help_text=HELP, module="kvbench.figures.make", packages=("matplotlib",))
