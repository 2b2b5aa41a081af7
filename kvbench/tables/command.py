"""`kvbench table +experiment=NAME`: a published table made again from records, beside its published values."""

from functools import partial

from kvbench.papers.command_line import run_command

HELP = """\
usage: kvbench table +experiment=NAME [KEY=VALUE ...] [runs=FOLDER ...] [out=FOLDER]

Make the table of an experiment from the records of its runs, beside the published values. No model is loaded and
nothing is run: cells without records are left blank.

arguments:
  KEY=VALUE             overrides of the runs: model=smollm2-135m benchmark.tasks=[qasper] ...
  runs=FOLDER           where to look for records: folders of runs or of one run; default: output_dir
  out=FOLDER            where to write NAME.md, NAME.tex and NAME.csv; default: tables in output_dir
  published=true        print the published values alone, without records, and what the runs would cost
  --config-dir FOLDER   more configuration, as for kvbench itself

experiments:"""

main = partial(run_command, help_text=HELP, module="kvbench.tables.make")
