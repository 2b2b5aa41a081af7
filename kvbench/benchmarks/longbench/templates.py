"""LongBench's prompt templates: read at run time from a package or a file, each checked against the official hash."""

import json
import re
from collections.abc import Iterable
from pathlib import Path

import yaml

from kvbench.benchmarks.lm_eval_files import INSTALL, lm_eval_tasks, task_file
from kvbench.benchmarks.python_texts import proven
from kvbench.errors import UserError
from kvbench.utils.regular_files import read_text

# SHA-256 of the official templates (UTF-8) in LongBench's config/dataset2prompt.json, commit 2e00731.
SHA256 = {
    "narrativeqa": "aada7ed24b06abace5b0045ac3bcfe06fc831a6cf434f0ecfd99fb7b3d299e1c",
    "qasper": "0fbdd123fe7f83d6d6a9c583ca28cb29d68e523bf8fec01a0cf2dcd11037775d",
    "multifieldqa_en": "20b4666a2de8a1f701bdb6c4e015fa9f8758d64b361d841f7766df6c9ceba770",
    "multifieldqa_zh": "344b3a4e557cd5470c661b3d6b374339717e1257a6c01f628d22322d4a554b94",
    "hotpotqa": "9ec4ae308865bd0c62af20b3dc7b12b31f2b447f55684bd88c1aa40f2f636deb",
    "2wikimqa": "9ec4ae308865bd0c62af20b3dc7b12b31f2b447f55684bd88c1aa40f2f636deb",
    "musique": "9ec4ae308865bd0c62af20b3dc7b12b31f2b447f55684bd88c1aa40f2f636deb",
    "dureader": "ae53329f51b17908e08b8c6bf366987282b8b38c0ee35275ebd7b79e9b30eff2",
    "gov_report": "91c25d585b189ced91c9280efcb4ecb5dcff9548cd4e3bfae66c68025b569e95",
    "qmsum": "dca23b678fe0183bbd9555b57947022aed1b85739da5ad7e1b4708dd0c71c409",
    "multi_news": "2af3f28c40b902e6535d4910510d51653613c49de9b2fc287c5958395061101d",
    "vcsum": "3e5d8241bc9b512eb4929c1ba80882a44f50b446bc2b1d9d79eff030dd10dc27",
    "trec": "0eff8bebdba99d91e9d7d91b6ab39455ac74648bea92c9255c9f68c62175b2db",
    "triviaqa": "00a802e6377e72fca39b169cf6c28893bedf23ba7286b03ecd15867c3e27a7c4",
    "samsum": "a68d884234907eefcaa0eacf7b2997f60fa46603988dceae6a44f9b49f045b3f",
    "lsht": "f3edabdf7fae53d6cadfa7a10f3574d114302161c46dacecd5d30763204bbbf3",
    "passage_count": "986550b6c61009c629a4535766d94b7b51e2b2b9e1ed169e4ecb54417466e964",
    "passage_retrieval_en": "39b96b7fa52bdd2aa2bde34ea199158505201b9a0a2c3ce94e80249293f60431",
    "passage_retrieval_zh": "c1e2346e245eb365bc33a1503cde2e473948a2aad51c3e4c72893e61ab074d60",
    "lcc": "6a1f24cf0bb83cd90f1fca8f0dd24801626c2aaea29db834ddc83b950e71190e",
    "repobench-p": "ee9ec182ea5ffeb70a7140d55baea97264a8612d88226d323afa90859c36240c",
}

# White space of the official templates that lm-eval 0.4.13 lost: (after the context, at the end).
LOST = {
    "triviaqa": ("\n", ""),
    "samsum": ("\n", ""),
    "passage_count": ("", " "),
    "passage_retrieval_en": ("", " "),
    "lcc": ("", "\n"),
    "repobench-p": ("", "\n"),
}

OR_A_FILE = "or benchmark.prompts_file=FILE names a copy of LongBench's config/dataset2prompt.json"


def load(tasks: Iterable[str], prompts_file: str | None = None) -> dict[str, str]:
    """The official templates of `tasks`, with `{context}` and `{input}` where a row's fields go.

    From `prompts_file` in the form of LongBench's dataset2prompt.json, else from the installed lm-eval, whose
    files are read without importing it. Raises UserError where a template is not the official one.
    """
    source = Path(prompts_file) if prompts_file is not None else _lm_eval()
    templates = _from_json(source, tasks) if prompts_file is not None else _from_yaml(source, tasks)
    return {task: proven(f"the prompt of {task!r}", text, SHA256[task], source) for task, text in templates.items()}


def _from_json(path: Path, tasks: Iterable[str]) -> dict[str, str]:
    try:
        prompts = json.loads(read_text(path))
    except OSError as error:
        raise UserError(f"benchmark.prompts_file={str(path)!r} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise UserError(f"benchmark.prompts_file={str(path)!r} is not JSON in UTF-8: {error}") from error
    for task in tasks:
        if not isinstance(prompts, dict) or not isinstance(prompts.get(task), str):
            raise UserError(f"benchmark.prompts_file={str(path)!r} has no prompt for {task!r}")
    return {task: prompts[task] for task in tasks}


def _lm_eval() -> Path:
    try:
        return lm_eval_tasks("longbench")
    except UserError as error:
        raise UserError(f"{error}, {OR_A_FILE}") from error


def _from_yaml(folder: Path, tasks: Iterable[str]) -> dict[str, str]:
    templates = {}
    for task in tasks:
        try:
            template = task_file(folder / f"{task}.yaml")["doc_to_text"]
        except (OSError, yaml.YAMLError, KeyError, TypeError) as error:
            raise UserError(
                f"the installed lm-eval has no prompt for {task!r} in {folder}: {INSTALL}, {OR_A_FILE}"
            ) from error
        between, end = LOST.get(task, ("", ""))
        template = re.sub(r"\{\{\s*context\s*\}\}", "{context}", template)
        template = re.sub(r"\{\{\s*(?:question|input)\s*\}\}", "{input}", template)
        templates[task] = template.replace("{context}", "{context}" + between) + end
    return templates
