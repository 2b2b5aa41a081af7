"""The metric of RepoQA's tasks in SCBench (microsoft/MInference at fb56c91, scbench/repo_qa_utils.py).

The function in a prediction is compared with all functions of its repository that questions ask for: it must be most
similar to the right one, with a BLEU of at least 0.8. The official code compares with the functions of a run's samples;
here it is the functions of the whole data file, so that no score depends on the number of samples in a run.
"""

import re
import warnings
from collections.abc import Iterable, Sequence
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, NamedTuple

from kvbench.errors import UserError

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

ENOUGH = 0.8
# The node of a function by language, as (node, its fields down to the name); a field's node must be of the type named.
FUNCTIONS: dict[str, tuple[str, tuple[tuple[str, str | None], ...]]] = {
    "python": ("function_definition", (("name", None),)),
    "java": ("method_declaration", (("name", None),)),
    "typescript": ("function_declaration", (("name", None),)),
    "rust": ("function_item", (("name", None),)),
    "cpp": ("function_definition", (("declarator", "function_declarator"), ("declarator", "identifier"))),
    "go": ("function_declaration", (("name", None),)),
}
GRAMMARS = {lang: f"tree_sitter_{lang}" for lang in FUNCTIONS}  # the module of each language: data names no other
PACKAGES = ("tree_sitter", *GRAMMARS.values())
# A fenced block: its lines between one that begins with ``` and a language or nothing, and the next ```.
_BLOCK = re.compile(r"^```\w*\s*\n(.*?)^```", re.DOTALL | re.MULTILINE)


def check_parsers() -> None:
    """Raise UserError where a parser is not installed."""
    if missing := [name.replace("_", "-") for name in PACKAGES if find_spec(name) is None]:
        raise UserError(
            f"repoqa's answers are parsed with tree-sitter, and {missing[0]} is not installed: "
            "pip install 'kvbench[repoqa]', or choose tasks without repoqa"
        )


class Function(NamedTuple):
    name: str
    code: str


def by_repository(functions: Iterable[tuple[str, str, str]]) -> dict[str, list[Function]]:
    """Name and code of functions (repository, name, code), each once, by repository."""
    repositories: dict[str, list[Function]] = {}
    for repo, name, code in dict.fromkeys(functions):
        repositories.setdefault(repo, []).append(Function(name, code))
    return repositories


def score(prediction: str, name: str, candidates: Sequence[tuple[str, str]], lang: str) -> float:
    """1 if, of all candidates (name, code), the most similar to the prediction's function is called `name`, with a BLEU
    of at least 0.8; of equally similar candidates, the first counts."""
    predicted = function_in(prediction, lang)
    similarities = ((bleu(predicted, code), candidate) for candidate, code in candidates)
    similarity, best = max(similarities, key=lambda pair: pair[0])
    return float(best == name and similarity >= ENOUGH)


def function_in(prediction: str, lang: str) -> str:
    """The first function in a prediction's fenced blocks; without one, the first block; without blocks, all of it."""
    prediction = prediction.strip()
    blocks = _BLOCK.findall(prediction)
    for block in blocks:
        code: bytes = block.encode()
        if (node := _first_function(_parser(lang).parse(code).root_node, lang)) is not None:
            return code[node.start_byte : node.end_byte].decode()
    return blocks[0] if blocks else prediction


def bleu(candidate: str, reference: str) -> float:
    """Sentence BLEU of words between blanks, with NLTK's smoothing method 4."""
    from nltk.translate.bleu_score import SmoothingFunction, sentence_bleu

    words, expected = (re.split(r"\s+", text.strip()) for text in (candidate, reference))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of texts without a common word
        return float(sentence_bleu([expected], words, smoothing_function=SmoothingFunction().method4))


def _first_function(node: "Node", lang: str) -> "Node | None":
    """The first function in the order of the text; None if there is none."""
    waiting = [node]
    while waiting:
        node = waiting.pop()
        if _is_function(node, lang):
            return node
        waiting += reversed(node.children)
    return None


def _is_function(node: "Node", lang: str) -> bool:
    kind, fields = FUNCTIONS[lang]
    if node.type != kind:
        return False
    for field, expected in fields:
        child = node.child_by_field_name(field)
        if child is None or expected not in (None, child.type):
            return False
        node = child
    return True


@cache
def _parser(lang: str) -> "Parser":
    from tree_sitter import Language, Parser

    module = import_module(GRAMMARS[lang])
    grammar = module.language_typescript if lang == "typescript" else module.language
    return Parser(Language(grammar()))
