"""`kvbench table +experiment=NAME`: a published table made again from records, beside its published values."""

from functools import partial

from kvbench.papers.command_line import run_command

HELP = """\
kvbench table: the table of an experiment from the records of its runs, beside the published values

  kvbench table +experiment=NAME [OVERRIDES] [runs=FOLDER ...] [out=FOLDER]

  OVERRIDES    those of the runs: model=smollm2-135m benchmark.tasks=[qasper] ...
  runs=FOLDER  where to look for records: folders of runs or of one run; output_dir when not given
  published=true  the published values alone, without records, and what the runs would cost
  out=FOLDER   where to write NAME.md, NAME.tex and NAME.csv; tables in output_dir when not given
  --config-dir FOLDER  more configuration, as for kvbench itself

No model is loaded and nothing is run: cells without records are left blank.

+experiment="""

main = partial(run_command, help_text=HELP, module="kvbench.tables.make")
