"""Stand-ins for files of MATH-500 and AIME: of their form, with problems of our own."""

import json
from dataclasses import replace
from pathlib import Path

from kvbench.benchmarks import MathProblems, math_problems
from kvbench.benchmarks.python_texts import sha256
from kvbench.utils.hashing import file_hash

TEMPLATE = "Solve {question} and end with \\boxed{{}}."
ROWS = {
    "math500": [
        {"problem": "halve $x$", "answer": "\\frac{x}{2}", "subject": "Algebra", "level": 1},
        {"problem": "add 1 {and} 2", "answer": "3", "subject": "Algebra", "level": 2},
    ],
    "aime24": [{"question": f"add {i} and 20", "answer": f"0{20 + i}"} for i in range(3)],
    "aime25": [{"question": "add 5 and 6", "true_answer": "11"}],
}


def places(folder: Path, monkeypatch) -> dict[str, str]:
    """data_dir and prompts_file, whose files count as official."""
    for name, rows in ROWS.items():
        path = folder / math_problems.SETS[name].file
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        monkeypatch.setitem(math_problems.SETS, name, replace(math_problems.SETS[name], sha256=file_hash(path)))
    prompts = folder / "run_math.py"
    prompts.write_text(f"import nowhere\n\nprompt_template = {TEMPLATE!r}\n\nraise SystemExit('not to be run')\n")
    monkeypatch.setattr(math_problems, "PROMPT", sha256(TEMPLATE))
    return {"data_dir": str(folder), "prompts_file": str(prompts)}


def benchmark(folder: Path, monkeypatch, **changes) -> MathProblems:
    config = {"sets": ["aime24", "aime25"], "repeats": 2} | places(folder, monkeypatch)
    return MathProblems(**(config | changes))
