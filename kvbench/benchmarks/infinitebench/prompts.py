"""InfiniteBench's templates, read at run time from published files and checked against the official hashes."""

import re
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import yaml

from kvbench.benchmarks.lm_eval_files import lm_eval_tasks, task_file
from kvbench.benchmarks.published_data import given_or_fetched
from kvbench.benchmarks.python_texts import constants, every_text, proven, sha256
from kvbench.benchmarks.truncation import PromptText
from kvbench.errors import UserError

Family = Literal["gpt4", "yarn_mistral"]

PUBLISHED = {
    "https://raw.githubusercontent.com/OpenBMB/InfiniteBench/88b3daa6989da2fbe0077170d7a3c84c25d5ae58/src/prompt.py": (
        "d49a6891d6bc61522bb428d66a07b092a6bb6bc195aa0fe103eddd6bb39c7f10"
    )
}
# Places in lm-eval's texts, and their official names; there {input} is also the place of {question}.
PLACES = {"{{context}}": "{context}", "{{input}}": "{input}", "{input_text}": "{input}"}
PLACES |= {f"{{opt_{letter.lower()}}}": f"{{OPTION_{letter}}}" for letter in "ABCD"}
SHA256 = {
    "gpt4": {
        "passkey": "a1d265268f61d448425d7bc1193f7be3adddbdf24e9a439013c47aeced7d25ac",
        "number_string": "7f84f8637ed441f6471fec8299e9a72c70957d6251f5fcdc11b9dde20bf5c08f",
        "kv_retrieval": "afa97419dd69cd749842c629df9555857891cab7f7d794fe1c5c904da23d2515",
        "longbook_sum_eng": "73463436d5d11a9a73af4f1c08551b2641c51018f1077c9716cd2499bbb2efb5",
        "longbook_choice_eng": "7df117e8c610080b33e372b84964300d4b1c208c934fa9c7ba95194c19330716",
        "longbook_qa_eng": "3d0b2296b8712aaa5cae7cf466c26a97e150fc127e56bd681ccf3284978577bb",
        "longbook_qa_chn": "751d02a1547551de554110d994ed46cf0225f5b84e819f38475616d951ab9df5",
        "longdialogue_qa_eng": "f6dadd7709f11572ba0338b7cd9de636a7094fe9aeef902ceb3d5c869089185f",
        "math_find": "df2334891e94023ef2eb94f6ca9632e59b31075b0fd5eef9f7e26d4de8ad3a43",
        "math_calc": "35f11b1c997f869956287e0b54ce492fded10df0af340a95569935f69cff078b",
        "code_run": "e566fbaa9fa7dbcbeb3c6ec70ae09894a0410f73979cad510e06105dafeeff8a",
        "code_debug": "94ffaeb0375fe01b1e1d49b43e458b80a7981f0e33f09f1b1b1a02513996a88b",
    },
    "yarn_mistral": {
        "passkey": "32a0f730f8746b1a422cc902bce30eed03bbbfdc9a3e843160db2bb8596bd1af",
        "number_string": "f519b51c90c40022263867a09e516e80c2fa2bd9684247eacfcb535a73ac039c",
        "kv_retrieval": "afa97419dd69cd749842c629df9555857891cab7f7d794fe1c5c904da23d2515",
        "longbook_sum_eng": "897e95259c5b906aac8d1c077d669c5d9c22b280d7f06e2feeec42fb8563dea0",
        "longbook_choice_eng": "fddf5d8b4293a2750dce8eba2073fea6b0bbbb1c7b971ba4a95a1b226a8f964a",
        "longbook_qa_eng": "6f24f4abaf415845a823c5a33699c83490e31776fc8baa81f5b384dfb4d55064",
        "longbook_qa_chn": "121d4332c1cc5ee0fae23999bd9f3570ba6c8663a3dce944e1bae554b8a97dad",
        "longdialogue_qa_eng": "0483f9f01c709be72f4d0e62e9e14cb7acfa6611872e2ddc673c02b9a5b1f9c2",
        "math_find": "df2334891e94023ef2eb94f6ca9632e59b31075b0fd5eef9f7e26d4de8ad3a43",
        "math_calc": "ebf0b348e08e938fa275384761bcc6232b9bfe05f7abaeffee9eb3dd3857b3e1",
        "code_run": "8cfbec4288592e7702454e3f08534d574e7bb31c13d6077a5b6f9e3b6e714cfa",
        "code_debug": "e485a37d7c9c193feff36ef43e89b4cc460ae2aa350eb986888cff92c563a7b2",
    },
}


def load(family: Family, tasks: Iterable[str], prompts_file: str | None = None) -> dict[str, str]:
    """The official templates of `tasks`, with places such as {context} and {question} for a row's fields.

    From `prompts_file`; else gpt4's prompts from the installed lm-eval, and the others from InfiniteBench's repository.
    All are read as text and not run. Raises UserError where a template is not the official one.
    """
    installed = _in_lm_eval() if prompts_file is None and family == "gpt4" else {}
    missing = [task for task in tasks if task not in installed]
    return {task: installed[task] for task in tasks if task in installed} | _in_source(family, missing, prompts_file)


def _in_source(family: Family, tasks: Sequence[str], prompts_file: str | None) -> dict[str, str]:
    if not tasks:
        return {}
    source = given_or_fetched("prompts_file", prompts_file, "infinitebench-prompt.py", PUBLISHED)
    published = constants(source).get(f"{family}_templates")
    templates = {}
    for task in tasks:
        template = published.get(task) if isinstance(published, dict) else None
        if not isinstance(template, str):
            raise UserError(f"{source} has no {family} prompt for {task!r}: it is not InfiniteBench's src/prompt.py")
        templates[task] = proven(f"the {family} prompt of {task!r}", template, SHA256[family][task], source)
    return templates


def _in_lm_eval() -> dict[str, str]:
    """The templates of gpt4 in the installed lm-eval, identified by their hashes: all but math_calc's."""
    try:
        folder = lm_eval_tasks("infinitebench")
        texts = list(every_text(folder / "utils.py"))
        files = [task_file(path) for path in sorted(folder.glob("*.yaml"))]
    except (UserError, OSError, SyntaxError, yaml.YAMLError):
        return {}
    texts += [f"{file.get('description')}{file.get('doc_to_text')}" for file in files if isinstance(file, dict)]
    names = {digest: task for task, digest in SHA256["gpt4"].items()}
    templates = {}
    for text in texts:
        for old, new in PLACES.items():
            text = text.replace(old, new)
        for candidate in (text, text.replace("{input}", "{question}")):
            if task := names.get(sha256(candidate)):
                templates[task] = candidate
    return templates


def fill(task: str, template: str, row: dict[str, Any]) -> PromptText:
    """The prompt of a row, as in the official create_prompt, and the part that follows the context.

    Raises ValueError if the row's input does not name the object of its question.
    """
    fields = {"input": row["input"], "question": row["input"]}
    fields |= {f"OPTION_{letter}": option for letter, option in zip("ABCD", row["options"], strict=False)}
    if task == "code_run":
        call = _match(r"func_[0-9]+\(\-?[0-9]+\)", row["input"])
        fields |= {"func_call": call, "func": call.partition("(")[0]}
    if task == "math_find":
        fields["prefix"] = f"What is {_match('The .+ of', row['input']).lower()[:-3]} in the following list?"
    _, _, after = template.partition("{context}")
    return PromptText(template.format(context=row["context"], **fields), after.format(**fields))


def _match(pattern: str, text: str) -> str:
    if (match := re.search(pattern, text)) is None:
        raise ValueError(f"field 'input' has nothing of the form {pattern}")
    return match[0]
