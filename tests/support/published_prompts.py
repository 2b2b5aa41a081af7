"""Stand-ins for files of official repositories: of their form, with texts of our own."""

from pathlib import Path

from kvbench.benchmarks.babilong import prompts as babilong
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
