"""What do cache types of served engines cost in answers, and what do they give? python -m scripts.results.served

For each type of the cache a server is started, asked 60 prompts whose answers are scored, and loaded by GuideLLM (make
engine-guidellm) with 1, 4 and 8 requests at once. Records stay in runs/served, so a stopped run goes on where it was;
tables and what computed them go to results/engines/served (--out names another folder).

--of chooses tables: smollm2 (llama.cpp, the default); llama_cpp, vllm and vllm_prefix (Qwen2.5-Coder-0.5B), the last of
which loads vLLM with its prefix cache and without it by eight prompts that it has read before. --answers asks and loads
nothing, for a machine that is busy: the same command without it goes on with the loads. --start is the command of
another server, with {flags} in the place of a type.
"""

import argparse
import json
import random
import shutil
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from kvbench.configuration import configured
from kvbench.runner import run as command
from kvbench.runner import served
from scripts.frame import script_parser, until_stopped
from scripts.results.engines import provenance
from scripts.results.served_servers import QWEN, ROOT, SMOLLM2, Model, Server, llama_cpp, vllm, vllm_prefix

COLOURS = "red blue green black white yellow brown silver golden grey purple orange".split()
THINGS = "door box chest gate locker drawer".split()


@dataclass(frozen=True)
class Table:
    """A table of one engine and model."""

    model: Model
    codes: int  # in a prompt
    server: Server
    flags: tuple[str, ...]  # the first of which is the baseline
    title: str = ""  # before the flags, in the names of settings; "": as kvbench names them
    threads: int = 1
    requests: int = 10
    warmup: int = 2
    prompts: int = 60
    fresh: bool = True  # a number before each prompt of a load, so that no prefix cache has read it
    out: str = ""


TABLES = {
    "smollm2": Table(SMOLLM2, 4, llama_cpp, ("f16", "q8_0", "q4_0")),
    "llama_cpp": Table(
        QWEN, 14, llama_cpp, ("f16", "q8_0", "q4_0", "q8_0/q4_0"), "llama.cpp ", 2, 8, 1, out="qwen/llama_cpp"
    ),
    "vllm": Table(QWEN, 14, vllm, ("auto", "fp8"), "vLLM ", 2, 8, 1, out="qwen/vllm"),
    "vllm_prefix": Table(
        QWEN, 14, vllm_prefix, ("no-enable", "enable"), "vLLM prefix cache ", 2, 8, 8, 8, False, "qwen/vllm_prefix"
    ),
}


def written(folder: Path, codes: int, count: int = 60) -> Path:
    """Prompts of so many codes, one of which is asked for: about 13 tokens for each code."""
    draw = random.Random(0)
    names = [f"{colour} {thing}" for colour in COLOURS for thing in THINGS]
    lines = []
    for number in range(1, count + 1):
        chosen, values = draw.sample(names, codes), [str(draw.randrange(1000, 9999)) for _ in range(codes)]
        asked = draw.randrange(codes)
        context = " ".join(f"The code of the {name} is {value}." for name, value in zip(chosen, values, strict=True))
        question = f"What is the code of the {chosen[asked]}?"
        lines.append({"context": context, "question": question, "answers": [values[asked]], "id": str(number)})
    path = folder / "prompts.jsonl"
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def asked(prompts: Path) -> list[str]:
    """The overrides that ask these prompts."""
    return ["benchmark=jsonl", f"benchmark.path={prompts}", "benchmark.metric=contains", "benchmark.max_new_tokens=12"]


def engine(table: Table, options: argparse.Namespace) -> list[str]:
    """The overrides that choose the server and its settings."""
    flags = options.flags.split(",") if options.flags else table.flags
    start = options.start or table.server(
        table.model, urlsplit(options.url).port or 80, options.threads or table.threads
    )
    labels = [f"engine.label=[{','.join(table.title + flag for flag in flags)}]"] if table.title else []
    server = [f"engine.flags=[{','.join(flags)}]", f"engine.command='{start}'", f"engine.url={options.url}"]
    return ["engine=openai", *server, *labels]


def make(table: Table, folder: Path, options: argparse.Namespace) -> None:
    """Answers and loads, then the table of both."""
    prompts = written(folder, table.codes, table.prompts)
    shared = [*engine(table, options), f"model={table.model.name}", f"output_dir={folder}"]
    answers = command.run(configured([*shared, *asked(prompts)]))
    if options.answers:
        return
    out = options.out / table.out
    out.mkdir(parents=True, exist_ok=True)
    loads = ["benchmark=serve", "benchmark@benchmark.of=jsonl", f"benchmark.of.path={prompts}"]
    loads += [f"benchmark.rates={options.rates}", f"benchmark.requests={options.requests or table.requests}"]
    loads += [f"benchmark.warmup={table.warmup}", f"benchmark.repeats={options.repeats}"]
    loads += ["benchmark.new_tokens=16", "benchmark.first_token_ms=4000", f"benchmark.fresh={table.fresh}"]
    loaded = command.run(configured([*shared, *loads]))
    served.main([str(answers), str(loaded), "--out", str(out)])
    for name in ("table.md", "table.csv"):
        shutil.copy(loaded / name, out / f"loads{Path(name).suffix}")
    (out / "served.pdf").unlink(missing_ok=True)  # the same picture as served.png
    made_by = [*provenance(answers), *provenance(loaded)]
    (out / "provenance.json").write_text(json.dumps(made_by, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    parser = script_parser(__doc__)
    parser.add_argument("--of", nargs="*", default=["smollm2"], choices=TABLES, help="tables")
    parser.add_argument("--answers", action="store_true", help="ask, and load nothing")
    parser.add_argument("--records", default="runs/served", help="folder of the records")
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "engines" / "served")
    parser.add_argument("--start", help="command of another server")
    parser.add_argument("--url", default="http://127.0.0.1:8471/v1", help="where it answers")
    parser.add_argument("--threads", type=int, help="of a server; one on a machine that is busy")
    parser.add_argument("--flags", help="types in place of the table's, separated by commas; the first is the baseline")
    parser.add_argument("--rates", default="[1,4,8]", help="requests at once")
    parser.add_argument("--requests", type=int, help="requests of a load")
    parser.add_argument("--repeats", type=int, default=3, help="of each load")
    options = parser.parse_args()
    folder = Path(options.records).resolve()
    with until_stopped():
        for name in options.of:
            make(TABLES[name], folder if name == "smollm2" else folder / name, options)


if __name__ == "__main__":
    main()
