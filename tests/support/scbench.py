"""Stand-ins for SCBench's files: of their form, with texts of our own."""

import json
from dataclasses import replace
from pathlib import Path

from kvbench.benchmarks import SCBench
from kvbench.benchmarks.python_texts import sha256
from kvbench.benchmarks.scbench import prompts
from kvbench.benchmarks.scbench.tasks import TASKS

FIELDS = {
    "qa_eng": "Asked: {question}\nReply:",
    "qa_chn": "问：{question}\n答：",
    "choice_eng": "Asked: {question}\nA: {OPTION_A} B: {OPTION_B} C: {OPTION_C} D: {OPTION_D}\nReply:",
    "mf": "{prefix} {input}",
}
CODE = {
    "blue": "def blue(a, b):\n    total = a + b\n    return total * 2 - len(str(a)) + sum([a, b, 3])\n",
    "red": "def red(text):\n    parts = text.split()\n    return [part.lower() for part in parts if part != 'x'][:7]\n",
}


def templates() -> dict[str, dict]:
    """The four dictionaries of eval_utils.py."""
    asks = {name: FIELDS.get(name, "{input}") for name in TASKS}
    heads = {name: "Read this.\n\n" if name in ("kv", "repoqa", *FIELDS) else "" for name in TASKS}
    found = {
        prompts.FIRST: {name: f"{heads[name]}{{context}}\n\n{ask}" for name, ask in asks.items()},
        prompts.LATER_CHAT: asks,
        prompts.LATER_RAW: {name: f"{{pre_ans}}\n\n{ask}" for name, ask in asks.items()},
        prompts.SHARED: {
            name: (f"{heads[name]}{{context}}", ask) if name in FIELDS else f"{heads[name]}{{context}}"
            for name, ask in asks.items()
            if name != "mf"
        },
    }
    found[prompts.FIRST]["mf"] = "{prefix}\n\n{context}\n\n{input}"
    return {key: {TASKS[name].file: text for name, text in texts.items()} for key, texts in found.items()}


def prompts_file(folder: Path, monkeypatch) -> str:
    """An eval_utils.py whose templates count as official."""
    for key, texts in templates().items():
        for name, text in texts.items():
            hashes = tuple(map(sha256, (text,) if isinstance(text, str) else text))
            monkeypatch.setitem(prompts.SHA256[key], name.removeprefix("scbench_"), hashes)
    path = folder / "eval_utils.py"
    body = "".join(f"{key} = {texts!r}\n" for key, texts in templates().items())
    path.write_text(f"import nowhere\n\n{body}\nraise SystemExit('not to be run')\n", encoding="utf-8")
    return str(path)


def rows() -> dict[str, list[dict]]:
    """Two rows of three turns of every task."""

    def make(context, turns, **more):
        return [{"id": i, "context": context(i), "multi_turns": turns(i), **more} for i in range(2)]

    book = "Anna lived in {}. The mill stood by the river. "
    keys = {f"k{i}": f"v{i * 37 % 100}" for i in range(12)}
    needle = [f"The secret number is {71 + i}. The sky is grey. The mill stood by the river. " * 3 for i in range(2)]
    found = {
        "kv": make(
            lambda i: json.dumps(keys), lambda i: [_turn(f'Value of "k{i + t}"?', keys[f"k{i + t}"]) for t in range(3)]
        ),
        "prefix_suffix": make(lambda i: json.dumps(keys), lambda i: [_turn(f"k{t}…", keys[f"k{t}"]) for t in range(3)]),
        "vt": make(lambda i: "VAR A = 3. VAR B = A. ", lambda i: [_turn("Which are 3?", ["A", "B"]) for _ in range(3)]),
        "qa_eng": make(book.format, lambda i: [_turn("Where did Anna live?", str(i)) for _ in range(3)]),
        "qa_chn": make(lambda i: "月亮在山上。" * 4, lambda i: [_turn("月亮在哪里？", "在山上") for _ in range(3)]),
        "choice_eng": make(
            book.format, lambda i: [_turn("Who?", "Anna", options=["Bob", "Anna", "Cy", "Di"]) for _ in range(3)]
        ),
        "many_shot": make(
            lambda i: "Q: 1+1? (A) 2 (B) 3 -> (A). ", lambda i: [_turn("Q: 2?", "(A)") for _ in range(3)]
        ),
        "mf": [
            {
                "id": i,
                "context": [4, 9, 7, i],
                "multi_turns": [_turn(f"The {s} number is", 9) for s in ("largest", "top", "last")],
            }
            for i in range(2)
        ],
        "summary": make(book.format, lambda i: [_turn("Sum up.", "Anna lived by the mill.") for _ in range(3)]),
        "summary_with_needles": make(
            lambda i: needle[i],
            lambda i: [
                _turn("Sum up.", "Grey sky.", task="scbench_summary"),
                _turn("Number?", str(71 + i), task="scbench_passkey"),
                _turn("Sum up.", "Grey sky.", task="scbench_summary"),
            ],
        ),
    }
    code = {"lang": "python", "repo": "colours"}
    ask = [_turn(f"Which function is {name}?", body, name=name) for name, body in CODE.items()]
    found["repoqa"] = make(lambda i: "\n".join(CODE.values()), lambda i: ask, **code)
    mixed = [{**ask[0], "task": "scbench_repoqa"}, _turn("Value of k1?", "v37", task="scbench_kv")]
    found["repoqa_and_kv"] = make(lambda i: "\n".join(CODE.values()) + json.dumps(keys), lambda i: mixed, **code)
    return found


def _turn(question: str, answer, **more) -> dict:
    return {"input": question, "answer": answer, **more}


def write_rows(folder: Path, **changed: list[dict]) -> str:
    for name, made in (rows() | changed).items():
        lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in made]
        (folder / f"scbench_{name}.jsonl").write_text("".join(lines), encoding="utf-8")
    return str(folder)


def benchmark(folder: Path, monkeypatch, rows=None, **changes) -> SCBench:
    """The benchmark on these files."""
    config = {"tasks": "all", "mode": "shared", "max_length": 20_000}
    config |= {"data_dir": write_rows(folder, **(rows or {})), "prompts_file": prompts_file(folder, monkeypatch)}
    return SCBench(**(config | changes))


def short_answers() -> dict:
    """The tasks with answers of a few tokens."""
    return {name: replace(task, limits={kind: 4 for kind in task.limits}) for name, task in TASKS.items()}
