"""LongBench's official metrics (github.com/THUDM/LongBench at 2e00731, LongBench/metrics.py and eval.py).

Each metric is a function of a prediction, one answer and the task's class names, in [0, 1]. Oddities are the official
code's: published numbers depend on them.
"""

import re
import string
from collections import Counter
from collections.abc import Callable, Sequence

from kvbench.errors import UserError, unknown
from kvbench.metrics.backends import google_rouge, rouge_l, similarity, words

Metric = Callable[[str, str, Sequence[str] | None], float]

# eval.py scores only the first line of the prediction for these tasks
FIRST_LINE = frozenset(["trec", "triviaqa", "samsum", "lsht"])

ARTICLES = re.compile(r"\b(a|an|the)\b")
# Full-width forms, CJK punctuation and some general punctuation; not in the official set: 〈 〉 《 ． · ﹑ ﹔
CHINESE_PUNCTUATION = (
    "".join(map(chr, [*range(0xFF01, 0xFF0E), 0xFF0F, *range(0xFF1A, 0xFF21), *range(0xFF3B, 0xFF41)]))
    + "".join(map(chr, [*range(0xFF5B, 0xFF65), *range(0x3001, 0x3004), *range(0x300B, 0x3012)]))
    + "".join(map(chr, [*range(0x3014, 0x3020), 0x3030, 0x303E, 0x303F, 0x2013, 0x2014, 0x2018, 0x2019]))
    + "".join(map(chr, [*range(0x201B, 0x2020), 0x2026, 0x2027, 0xFE4F]))
)
_ASCII = str.maketrans("", "", string.punctuation)
_CHINESE = str.maketrans("", "", string.punctuation + CHINESE_PUNCTUATION)


def score(task: str, prediction: str, answers: Sequence[str], all_classes: Sequence[str] | None) -> float:
    """The official score in [0, 1] of a prediction as generated: the best over the answers, 0 if there are none.

    Args:
        all_classes: the task's class names, needed by trec and lsht.

    Raises:
        UserError: an unknown task; answers or class names that the task's metric cannot use.
    """
    if task not in METRICS:
        raise unknown("LongBench task", task, METRICS)
    metric = _FUNCTIONS[METRICS[task]]
    prediction = first_line(task, prediction)
    return max((float(metric(prediction, answer, all_classes)) for answer in answers), default=0.0)


def needs_classes(task: str) -> bool:
    """Whether the task's metric needs the names of all classes."""
    return METRICS[task] == "classification"


def check_answers(task: str, answers: Sequence[str]) -> None:
    """Raise UserError for answers that the task's metric cannot use: those of a retrieval must name a paragraph."""
    if METRICS[task].startswith("retrieval"):
        score(task, "", answers, None)


def companions(task: str, prediction: str, answers: Sequence[str]) -> dict[str, float]:
    """Scores in addition to the official one: for summaries, ROUGE-L by Google's `rouge-score`.

    Its F-measure over whole texts, without stemming, best over the answers. The package's own tokens are ASCII letters
    and digits, of which Chinese texts have none: their tokens are jieba's words without punctuation.
    """
    if METRICS[task] not in ("rouge", "rouge_zh"):
        return {}
    tokenizer = _CHINESE_TOKENIZER if METRICS[task] == "rouge_zh" else None
    prediction = first_line(task, prediction)
    scores = (google_rouge("rougeL", prediction, answer, tokenizer=tokenizer).fmeasure for answer in answers)
    return {"rouge_score_l": max(scores, default=0.0)}


def first_line(task: str, prediction: str) -> str:
    """The part of a prediction that is scored: for the tasks in FIRST_LINE, the first line after leading line ends."""
    return prediction.lstrip("\n").split("\n")[0] if task in FIRST_LINE else prediction


def qa_f1(prediction: str, answer: str, all_classes: Sequence[str] | None = None) -> float:
    """F1 of words in lower case, without ASCII punctuation and articles."""
    return f1(english_words(prediction), english_words(answer))


def qa_f1_zh(prediction: str, answer: str, all_classes: Sequence[str] | None = None) -> float:
    """F1 of jieba's words in lower case, without punctuation and blanks."""
    return f1(_chinese(prediction), _chinese(answer))


def rouge(prediction: str, answer: str, all_classes: Sequence[str] | None = None) -> float:
    """ROUGE-L of the package `rouge`, which is not Google's; 0 where it fails."""
    return rouge_l(prediction, answer, frames=3)


def rouge_zh(prediction: str, answer: str, all_classes: Sequence[str] | None = None) -> float:
    """ROUGE-L of the package `rouge` over jieba's words."""
    return rouge_l(" ".join(words(prediction)), " ".join(words(answer)), frames=4)


def classification(prediction: str, answer: str, all_classes: Sequence[str] | None) -> float:
    """One over the number of classes named in the prediction if the answer is among them.

    A named class that is part of the answer's name does not count. The official loop deletes from the list
    that it iterates over and so skips the entry after a deleted one; this does the same.
    """
    if all_classes is None:
        raise UserError(f"classification of {answer!r} needs all_classes, the names of the task's classes")
    named = [name for name in all_classes if name in prediction]
    for name in named:
        if name in answer and name != answer:
            named.remove(name)
    return 1 / len(named) if answer in named else 0.0


def retrieval(prediction: str, answer: str, all_classes: Sequence[str] | None = None) -> float:
    """Share of the prediction's numbers that are the answer's paragraph."""
    return count(prediction, _paragraph("Paragraph ", answer))


def retrieval_zh(prediction: str, answer: str, all_classes: Sequence[str] | None = None) -> float:
    """Share of the prediction's numbers that are the answer's paragraph."""
    return count(prediction, _paragraph("段落", answer))


def count(prediction: str, answer: str, all_classes: Sequence[str] | None = None) -> float:
    """Share of the prediction's numbers that equal the answer, compared as text."""
    numbers = re.findall(r"\d+", prediction)
    return numbers.count(answer) / len(numbers) if numbers else 0.0


def code_sim(prediction: str, answer: str, all_classes: Sequence[str] | None = None) -> float:
    """Similarity, in whole percent, of the answer and the prediction's first line without `, # and //.

    Leading line ends are skipped; an empty line after them counts as a line. If every line has a mark, the prediction
    counts as empty.
    """
    lines = prediction.lstrip("\n").split("\n")
    code = next((line for line in lines if not any(mark in line for mark in ("`", "#", "//"))), "")
    return similarity(code, answer) / 100


def f1(prediction: Sequence[str], answer: Sequence[str]) -> float:
    """F1 of two bags of words; 0 when nothing is common, two empty ones included."""
    common = (Counter(prediction) & Counter(answer)).total()
    if common == 0:
        return 0.0
    precision, recall = common / len(prediction), common / len(answer)
    return 2 * precision * recall / (precision + recall)


def english_words(text: str) -> list[str]:
    """The words in lower case, without ASCII punctuation and articles."""
    return ARTICLES.sub(" ", text.lower().translate(_ASCII)).split()


def chinese_characters(text: str) -> list[str]:
    """The characters in lower case without punctuation and blanks, as benchmarks other than LongBench compare them."""
    return list("".join(text.lower().translate(_CHINESE).split()))


def _chinese(text: str) -> list[str]:
    """jieba's words in lower case, without punctuation and blanks; each is normalised after the segmentation."""
    bare = ("".join(word.lower().translate(_CHINESE).split()) for word in words(text))
    return [word for word in bare if word]


def _paragraph(name: str, answer: str) -> str:
    """The first number that follows `name` in the answer."""
    number = re.search(re.escape(name) + r"(\d+)", answer)
    if not number:
        raise UserError(f"answer {answer!r} of a retrieval task has no {name.strip()!r} with a number")
    return number[1]


class _ChineseTokenizer:
    tokenize = staticmethod(_chinese)


_CHINESE_TOKENIZER = _ChineseTokenizer()


_FUNCTIONS: dict[str, Metric] = {
    metric.__name__: metric
    for metric in (qa_f1, qa_f1_zh, rouge, rouge_zh, classification, retrieval, retrieval_zh, count, code_sim)
}
METRICS: dict[str, str] = {
    task: metric
    for metric, tasks in {
        "qa_f1": "narrativeqa qasper multifieldqa_en hotpotqa 2wikimqa musique triviaqa",
        "qa_f1_zh": "multifieldqa_zh",
        "rouge": "gov_report qmsum multi_news samsum",
        "rouge_zh": "dureader vcsum",
        "classification": "trec lsht",
        "retrieval": "passage_retrieval_en",
        "retrieval_zh": "passage_retrieval_zh",
        "count": "passage_count",
        "code_sim": "lcc repobench-p",
    }.items()
    for task in tasks.split()
}
# The packages that compute the metrics.
PACKAGES = {
    "fuzzywuzzy": {"code_sim"},
    "jieba": {"qa_f1_zh", "rouge_zh"},
    "rouge": {"rouge", "rouge_zh"},
    "rouge_score": {"rouge", "rouge_zh"},
}
