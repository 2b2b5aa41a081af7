"""`kvbench ruler FOLDER`: RULER's samples as files in the official layout; no weights are read."""

from collections.abc import Sequence
from pathlib import Path

from transformers import AutoTokenizer, PreTrainedTokenizerBase

from kvbench.benchmarks import Benchmark
from kvbench.benchmarks.ruler import Ruler, files
from kvbench.config import build
from kvbench.configuration import ModelSpec, configured
from kvbench.errors import UserError
from kvbench.models.embedded import embedded_folder
from kvbench.utils.console import print_line
from kvbench.utils.text import first_line

USAGE = """usage: kvbench ruler FOLDER [model=NAME] [benchmark.KEY=VALUE ...]

Write RULER's samples for the model's tokenizer as FOLDER/LENGTH/TASK/validation.jsonl. benchmark=ruler reads such a
folder with benchmark.data_dir=FOLDER.

arguments:
  FOLDER               where to write
  model=NAME           the model, as for kvbench
  benchmark.KEY=VALUE  keys of benchmark=ruler: lengths, tasks, num_samples ..."""


def main(arguments: Sequence[str]) -> None:
    if {"--help", "-h"} & set(arguments):
        print_line(USAGE)
        return
    if not arguments or "=" in arguments[0]:
        raise UserError("name a FOLDER to write to (kvbench ruler --help)")
    folder, overrides = Path(arguments[0]), arguments[1:]
    cfg = configured(["benchmark=ruler", *overrides])
    benchmark = build(cfg.benchmark, "benchmark", Benchmark)
    if not isinstance(benchmark, Ruler) or benchmark.data_dir is not None:
        raise UserError("only samples of benchmark=ruler without benchmark.data_dir are made here")
    for length, name, rows in benchmark.generated(_tokenizer(cfg.model)):
        path = files.export(folder, length, name, rows)
        print_line(f"{len(rows):>4} samples  {path}")


def _tokenizer(model: ModelSpec) -> PreTrainedTokenizerBase:
    source = model.path or (embedded_folder(model.embedded) if model.embedded else model.hub_id)
    try:
        return AutoTokenizer.from_pretrained(source, trust_remote_code=False, revision=model.revision)
    except (OSError, ValueError) as error:
        raise UserError(f"no tokenizer could be loaded from {source}: {first_line(error)}") from error
