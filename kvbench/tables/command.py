"""`kvbench table +experiment=NAME`: a published table made again from records, beside its published values."""

from collections.abc import Sequence

from kvbench.papers.command import printed_help, split

HELP = """\
kvbench table: the table of an experiment from the records of its runs, beside the published figures

  kvbench table +experiment=NAME [OVERRIDES] [runs=FOLDER ...] [out=FOLDER]

  OVERRIDES    those of the runs: model=smollm2-135m benchmark.tasks=[qasper] ...
  runs=FOLDER  where to look for records: folders of runs or of one run; output_dir when not given
  out=FOLDER   where to write NAME.md, NAME.tex and NAME.csv; tables in output_dir when not given
  --config-dir=FOLDER  more configuration, as for kvbench itself

No model is loaded and nothing is run: what has no record yet is left blank.

+experiment="""


def main(arguments: Sequence[str]) -> None:
    if printed_help(arguments, HELP):
        return
    from kvbench.tables.make import make  # brings pandas and torch, which --help need not wait for

    make(*split(arguments))
