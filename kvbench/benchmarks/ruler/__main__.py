"""`python -m kvbench.benchmarks.ruler FOLDER`: RULER's samples as files in the official layout; no weights are read."""

import sys
from pathlib import Path

from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf
from rich.console import Console
from transformers import AutoTokenizer

from kvbench.benchmarks.ruler import Ruler, files
from kvbench.cli import CONF, mistakes_in_one_line
from kvbench.embedded import embedded_folder
from kvbench.errors import UserError, first_line
from kvbench.settings import build

USAGE = """usage: python -m kvbench.benchmarks.ruler FOLDER [model=NAME] [benchmark.KEY=VALUE ...]

Writes FOLDER/LENGTH/TASK/validation.jsonl for the model's tokenizer; the keys are those of
python -m kvbench benchmark=ruler, which reads such a folder with benchmark.data_dir=FOLDER."""


def main(arguments: list[str]) -> None:
    if not arguments or arguments[0] in ("-h", "--help") or "=" in arguments[0]:
        print(USAGE)
        raise SystemExit(0 if arguments and arguments[0] in ("-h", "--help") else 2)
    folder, overrides = Path(arguments[0]), arguments[1:]
    with mistakes_in_one_line():
        with initialize_config_dir(str(CONF), version_base="1.3"):
            composed = compose("config", ["benchmark=ruler", *overrides])
        cfg = OmegaConf.to_container(composed, resolve=True)
        benchmark = build(cfg["benchmark"], "benchmark")
        if not isinstance(benchmark, Ruler) or benchmark.data_dir is not None:
            raise UserError("only samples of benchmark=ruler without benchmark.data_dir are made here")
        for length, name, rows in benchmark.generated(_tokenizer(cfg["model"])):
            path = files.export(folder, length, name, rows)
            Console().print(f"{len(rows):>4} samples  {path}", highlight=False, soft_wrap=True)


def _tokenizer(model: dict):
    embedded = model.get("embedded")
    source = model.get("path") or (embedded_folder(embedded) if embedded else model["hub_id"])
    try:
        return AutoTokenizer.from_pretrained(source, trust_remote_code=False, revision=model.get("revision") or "main")
    except (OSError, ValueError) as error:
        raise UserError(f"no tokenizer could be loaded from {source}: {first_line(error)}") from error


if __name__ == "__main__":
    main(sys.argv[1:])
