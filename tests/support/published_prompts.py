"""Stand-ins for files of official repositories: of their form, with texts of our own."""

import json
from pathlib import Path

from kvbench.benchmarks import longbench_v2
from kvbench.benchmarks.babilong import prompts as babilong
from kvbench.benchmarks.infinitebench import prompts as infinitebench
from kvbench.benchmarks.nolima import benchmark as nolima
from kvbench.benchmarks.python_texts import sha256

BABILONG = r"""
TASK = '{instruction}\n\n{examples}\n\n{post_prompt}'
DEFAULT_TEMPLATE = f'{TASK}\n\nBook:\n{{context}}\nEnd.\n\nAsked: {{question}}'
MADE_BY_CODE = TASK.upper()

def get_formatted_input(context, question):
    raise SystemExit("this file is not to be run")

DEFAULT_PROMPTS = """


def babilong_prompts(folder: Path, tasks: list[str], monkeypatch) -> Path:
    """A prompts.py whose prompts count as official."""
    parts = {
        task: {"instruction": f"  About {task}.", "examples": "A {brace}.", "post_prompt": "Be brief."}
        for task in tasks
    }
    for task, own in parts.items():
        whole = "\n\n".join([*own.values(), "Book:\n{context}\nEnd.", "Asked: {question}"])
        monkeypatch.setitem(babilong.SHA256, task, sha256(whole.strip()))
    path = folder / "prompts.py"
    path.write_text(BABILONG + repr(parts))
    return path


def longbench_v2_prompt(folder: Path, monkeypatch) -> Path:
    """A 0shot.txt that counts as official."""
    text = "Text:\n$DOC$\n--\nAsked: $Q$\n(A) $C_A$\n(B) $C_B$\n(C) $C_C$\n(D) $C_D$\nAnswer"
    monkeypatch.setattr(longbench_v2, "SHA256", sha256(text))
    path = folder / "0shot.txt"
    path.write_text(text)
    return path


def longbench_v2_rows() -> list[dict]:
    """A row of each length, of the data set's form."""
    return [
        {
            "_id": f"row-{number}",
            **{"domain": "Novels", "sub_domain": "Detective", "difficulty": difficulty, "length": length},
            "question": f" Who closed door {number}? ",
            **{f"choice_{letter}": f"{letter} of the four " for letter in "ABCD"},
            "answer": "ABC"[number],
            "context": "\n" + f"Door {number} was closed by the cook before the rain began. " * 12,
        }
        for number, (difficulty, length) in enumerate([("easy", "short"), ("hard", "medium"), ("hard", "long")])
    ]


def infinitebench_prompts(folder: Path, monkeypatch) -> Path:
    """A prompt.py whose templates count as official, with the places of the official ones before and after the text."""
    choice = "Pick.\n\n{context}\n\nAsked: {question}\nA {OPTION_A} B {OPTION_B} C {OPTION_C} D {OPTION_D}"
    forms = {
        **dict.fromkeys(["passkey", "number_string", "kv_retrieval"], "Find it.\n\n{context}\n\n{input}"),
        **dict.fromkeys(["longbook_qa_eng", "longbook_qa_chn"], "Read.\n\n{context}\n\nAsked: {question}\nBe brief."),
        "longbook_choice_eng": choice,
        "code_debug": choice.replace("{question}", "which is wrong?"),
        "longbook_sum_eng": "Sum up.\n\n{context}",
        "longdialogue_qa_eng": "Who?\n\n{context}\n\nWho is $$MASK$$?",
        "math_find": "{prefix}\n\n{context}\n\n{input}",
        "math_calc": "Compute.\n\n{context}",
        "code_run": "There is {func}.\n\n{context}\n\nWhat is {func_call}?",
    }
    source = "raise SystemExit(1)\n"
    for family in ("gpt4", "yarn_mistral"):
        texts = {task: text + (" Answer:" if family == "yarn_mistral" else "") for task, text in forms.items()}
        source += f"{family}_templates = {texts!r}\n"
        monkeypatch.setitem(infinitebench.SHA256, family, {task: sha256(text) for task, text in texts.items()})
    path = folder / "prompt.py"
    path.write_text(source, encoding="utf-8")
    return path


def nolima_data(folder: Path, monkeypatch) -> Path:
    """A run_tests.py whose prompt counts as official, beside two books and a needle set; the folder of these."""
    template = "Read the book.\n\n{haystack}\n\nNow answer: {question}\n\nOne word."
    monkeypatch.setattr(nolima, "SHA256", sha256(template))
    (folder / "run_tests.py").write_text(f"import missing\nDEFAULT_TASK_TEMPLATE = {template!r}\n")
    books, sets = folder / "haystack" / "rand_shuffle", folder / "needlesets"
    books.mkdir(parents=True)
    sets.mkdir()
    for number in (1, 2):
        lines = (f"Line {line} of book {number}, where the rain goes on" + "." * (line % 7) for line in range(400))
        (books / f"rand_book_{number}.txt").write_text("\n".join(lines) + "\n")
    (sets / "needle_set.json").write_text(json.dumps(NEEDLES))
    return folder


NEEDLES = [
    {
        "id": "0101onehop",
        **{"needle": "{CHAR} mends shoes in {1}.", "system_prompt": "", "character_set": ["Mira", "Tom", "Ada", "Lin"]},
        "questions": {"onehop": "Who is a cobbler in {1}?", "direct": "Who mends shoes in {1}?"},
        "tests": {"t1": {"input_args": ["Kiel"]}, "t2": {"input_args": ["Bern"]}},
    },
    {
        "id": "0202twohop",
        **{"needle": "The {1} by the {2} is shut.", "system_prompt": ""},
        "questions": {"twohop": "What is closed by the {2}, a {1}?"},
        "tests": {"t1": {"input_args": ["mill", "lake"], "gold_answers": ["mill", "wheel"]}},
    },
]
