"""SCBench's prompt templates, read at run time from its source, each checked against the official SHA-256."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvbench.benchmarks.published_data import given_or_fetched
from kvbench.benchmarks.python_texts import constants, proven
from kvbench.benchmarks.scbench.tasks import Task
from kvbench.errors import UserError

COMMIT = "fb56c917f618e8645f1cfc37535afd7424d78f0d"
PUBLISHED = {
    f"https://raw.githubusercontent.com/microsoft/MInference/{COMMIT}/scbench/eval_utils.py": (
        "d777e36d0dd20faaef0c421b3f1bd4ddfdc8cbbb76fff74194c063183f5ec3fc"
    )
}
# The official dictionaries: a first prompt, a later message inside and outside a chat template, and a shared context
# with the question about it.
FIRST, LATER_CHAT, LATER_RAW, SHARED = (
    "multiturn_templates",
    "multiturn_follow_up_templates_in_chat_tempate",
    "multiturn_follow_up_templates",
    "multiturn_templates_scdq",
)
_PLAIN = ("prefix_suffix", "vt", "many_shot", "summary", "summary_with_needles", "repoqa_and_kv")
_QUESTIONS = {
    "qa_eng": "4ec52b8bd55238a9434fafe6c404fdf7bb86783396c74a30f57bacf57e09dec0",
    "qa_chn": "efc1d66c41b899c799664b149719821f2c0bc5c9631c21e70c2600b4919fa07e",
    "choice_eng": "bca45d99666a76e1ddff0f7347f5e9fe621ea5c33e5ad51a427cc21d3ea2c5cc",
}
# SHA-256 of a task's texts, by dictionary; a shared context and its question are two texts.
SHA256: dict[str, dict[str, tuple[str, ...]]] = {
    FIRST: {
        **dict.fromkeys(_PLAIN, ("0f6aea3c6a209f7cebb66098b071137c15e6a0e11820be69d6deb0138d1f9a16",)),
        "kv": ("afa97419dd69cd749842c629df9555857891cab7f7d794fe1c5c904da23d2515",),
        "repoqa": ("55dc318d0951567227d1eb57c50f6b67b06bf442548789ac071a3f6c1fd0a98f",),
        "qa_eng": ("6f24f4abaf415845a823c5a33699c83490e31776fc8baa81f5b384dfb4d55064",),
        "qa_chn": ("121d4332c1cc5ee0fae23999bd9f3570ba6c8663a3dce944e1bae554b8a97dad",),
        "choice_eng": ("96278d2a90c10fbdbe4150cead35d2e055f9d08d5b0d1aef047e0bb622205c43",),
        "mf": ("df2334891e94023ef2eb94f6ca9632e59b31075b0fd5eef9f7e26d4de8ad3a43",),
    },
    SHARED: {
        **dict.fromkeys(_PLAIN, ("779f2c0f2bff58e36d15e9e6665b4627569d1fb2d6ae1d186b6eb5cc46ce814c",)),
        "kv": ("8c3661a0959db0829987924499e9f3b0fe6d438746b0f0649b8c0ef0b924d6d7",),
        "repoqa": ("05c91d538be2e7b20e3fcaae95ea64111f62df758cb5be9620704c52acad47dd",),
        "qa_eng": ("decf5e8eaeef6830fba76c89d47f7adf23567876ad90062403e6983fba1ea6a6", _QUESTIONS["qa_eng"]),
        "qa_chn": ("6f65518d25cb9dd275526206c527667da53159d3983d967ed7dfc507fc0d8380", _QUESTIONS["qa_chn"]),
        "choice_eng": ("7f71487503f6a906fd27d61bb60006dc9f23637d587719075880466f8f7e62dd", _QUESTIONS["choice_eng"]),
    },
    LATER_RAW: {
        **dict.fromkeys(
            (*_PLAIN, "kv", "repoqa"), ("ce773ac63a95be25c62f36baeb2ccd3f6a44a879041f7f1c8e2e05c65a85c2fa",)
        ),
        "qa_eng": ("bdec8315531390b369e5d495358c2e9cf56d7fd2ff2aa112f9becf8ddddebb6f",),
        "qa_chn": ("42b001868ba58cdabbea4572aa669293d92927b9b1962341a6aef2bc33ad429e",),
        "choice_eng": ("18e7e0357dab9af143c46b37a8c16243070a1105efaea643b053cfbd82539272",),
        "mf": ("8da9c46afdcfe6ab990d2fa2d2dcb7c3b466e815808893a17bc23e69db309ecc",),
    },
    LATER_CHAT: {
        **dict.fromkeys(
            (*_PLAIN, "kv", "repoqa"), ("5e1df29a7d7beef047a35ef479a50051377d9a8e5865c3683667fe66e025c542",)
        ),
        **{name: (sha256,) for name, sha256 in _QUESTIONS.items()},
        "mf": ("0d7d418ff7bf2f34b7e8c1a1ba0e446e2d7b08345887ef0478d6515b52ad61be",),
    },
}
BEFORE_LATER = "{pre_ans}\n\n"  # the beginning of raw templates of later messages: added to every message elsewhere


@dataclass(frozen=True)
class Templates:
    """A task's texts with places for a question's fields: before and after a context, and of a later message."""

    before: str
    after: str  # of a shared context: the question
    later: str


def load(tasks: Iterable[Task], mode: str, chat: bool, prompts_file: str | None = None) -> dict[str, Templates]:
    """The official templates of `tasks` for a mode, from `prompts_file` or the official repository.

    Its eval_utils.py is parsed and not run. Raises UserError where a template is not the official one.
    """
    source = given_or_fetched("prompts_file", prompts_file, "scbench-eval_utils.py", PUBLISHED)
    values = constants(source)
    if mode == "shared":
        return {task.name: _shared(_texts(values, SHARED, task, source)) for task in tasks}
    later = LATER_CHAT if chat else LATER_RAW
    templates = {}
    for task in tasks:
        before, _, after = _texts(values, FIRST, task, source)[0].partition("{context}")
        message = _texts(values, later, task, source)[0].removeprefix(BEFORE_LATER)
        templates[task.name] = Templates(before, after, message)
    return templates


def _shared(texts: tuple[str, ...]) -> Templates:
    context, question = (*texts, "{input}")[:2]
    return Templates(context.partition("{context}")[0], question, "")


def _texts(values: dict[str, Any], dictionary: str, task: Task, source: Path) -> tuple[str, ...]:
    """A task's texts in one of the official dictionaries, all checked."""
    published = values.get(dictionary)
    texts = published.get(task.file) if isinstance(published, dict) else None
    texts = (texts,) if isinstance(texts, str) else texts
    official = SHA256[dictionary][task.name]
    if not isinstance(texts, tuple) or len(texts) != len(official) or not all(isinstance(text, str) for text in texts):
        raise UserError(f"{source} has no {dictionary} of {task.file!r}: it is not SCBench's scbench/eval_utils.py")
    pairs = zip(texts, official, strict=True)
    return tuple(proven(f"{dictionary} of {task.file!r}", text, sha256, source) for text, sha256 in pairs)
