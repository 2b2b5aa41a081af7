"""`kvbench ruler FOLDER`: RULER's samples as files in the official layout; no weights are read."""

from collections.abc import Sequence
from pathlib import Path

from transformers import AutoTokenizer, PreTrainedTokenizerBase

from kvbench.benchmarks import Benchmark
from kvbench.benchmarks.ruler import Ruler, files
from kvbench.configuration import ModelSpec, configured
from kvbench.errors import UserError
from kvbench.models.embedded import embedded_folder
from kvbench.utils.arguments import Parser, word
from kvbench.utils.chat_template import as_read
from kvbench.utils.console import print_line
from kvbench.utils.targets import build
from kvbench.utils.text import first_line


def main(arguments: Sequence[str]) -> None:
    parser = Parser(
        "ruler",
        "Write RULER's samples for the model's tokenizer as FOLDER/LENGTH/TASK/validation.jsonl. benchmark=ruler reads "
        "such a folder with benchmark.data_dir=FOLDER.",
    )
    parser.add_argument("folder", metavar="FOLDER", type=word, help="where to write")
    parser.overrides("model=NAME as for kvbench, and keys of benchmark=ruler: lengths, tasks, num_samples ...")
    options = parser.parse(arguments)
    folder, overrides = Path(options.folder), options.overrides
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
        tokenizer = AutoTokenizer.from_pretrained(source, trust_remote_code=False, revision=model.revision)
    except (OSError, ValueError) as error:
        raise UserError(f"no tokenizer could be loaded from {source}: {first_line(error)}") from error
    return as_read(tokenizer, model.chat_template, model.template_args)
