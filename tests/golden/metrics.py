"""What every file of metrics says of fixed predictions."""

from collections.abc import Callable, Mapping
from itertools import product

from kvbench.metrics import (
    answers,
    babilong,
    infinitebench,
    instructions,
    kvpress,
    longbench,
    longbench_v2,
    math_answers,
    math_numbers,
    needle,
    nolima,
    repoqa,
    ruler,
    scbench,
)
from kvbench.metrics.versions import VERSIONS

# Predictions and expected answers that the metrics tell apart: right, wrong, half right, wordy, in another case or
# script, with marks, and empty.
PREDICTIONS = (
    "",
    "The answer is Paris, France.\nQuestion: and Rome?",
    "paris",
    "Answer: B. The Bedroom and the garden",
    "48213",
    "The numbers are 48,217 and 48213. 3.5",
    "北京在中国的北方。",
    "def add(a, b):\n    return a + b",
    "\\boxed{42} so 7",
    "Paragraph 3 and paragraph 12",
    "the apple and the milk. <context> bedroom",
    "The correct answer is (B).\nThe correct answer is C",
    "e,e",
    "In the bedroom",
)
ANSWERS = ("Paris", "B", "48213", "北京在中国", "bedroom", "def add(x, y):\n    return x + y", "42", "Paragraph 3")
NUMBERS = ("48213", "42", "7")
CLASSES = ["Paris", "bedroom", "Number"]
# A task of LongBench for each of its metrics.
TASKS = {metric: task for task, metric in longbench.METRICS.items()}


def pairs(function: Callable[[str, str], float], expected: tuple[str, ...] = ANSWERS) -> list[float]:
    return [function(prediction, answer) for prediction, answer in product(PREDICTIONS, expected)]


def listed(function: Callable) -> Callable[[str, str], float]:
    """A metric of a list of answers, as one of the answer and another."""
    return lambda prediction, answer: function(prediction, [answer, "Rome"])


def swapped(function: Callable[[str, str], float]) -> Callable[[str, str], float]:
    return lambda prediction, answer: function(answer, prediction)


def of_longbench(task: str) -> list[float]:
    expected = ANSWERS
    if longbench.METRICS[task].startswith("retrieval"):  # an answer names its paragraph
        expected = ("段落3", "段落48213") if task.endswith("zh") else ("Paragraph 3", "Paragraph 12")
    return pairs(lambda prediction, answer: longbench.score(task, prediction, [answer], CLASSES), expected)


def of_infinitebench(task: str) -> list[float]:
    function, expected, more = infinitebench.METRICS[task], ANSWERS, []
    if function is infinitebench.values:
        expected = ("[48, 217]", "[3, 12]")
    elif function in (infinitebench.first_number, infinitebench.last_integer):
        expected = NUMBERS
    elif function in (infinitebench.choice, infinitebench.debug):
        more = ["B"]
    return pairs(lambda prediction, answer: function(prediction, [answer, *more]), expected)


def of_scbench(kind: str) -> list[float]:
    expected = ("48213", "42") if kind == "mf" else ("(B) bedroom", "(A) Paris") if kind == "many_shot" else ANSWERS
    both = [scbench.score(kind, prediction, [answer]) for prediction, answer in product(PREDICTIONS, expected)]
    return [value for scores in both for value in scores.values()]


CASES: Mapping[str, Callable[[], dict[str, list[float]]]] = {
    "answers": lambda: {
        name: pairs(function, tuple("BPX") if name == "choice" else ANSWERS)
        for name, function in answers.METRICS.items()
    },
    "babilong": lambda: {
        task: pairs(lambda p, a, task=task: babilong.score(task, p, a, "Where is the garden?"), expected)
        for task, expected in {"qa1": ("bedroom", "garden"), "qa8": ("apple,milk", "milk"), "qa19": ("e,e",)}.items()
    },
    "infinitebench": lambda: {task: of_infinitebench(task) for task in sorted(infinitebench.METRICS)},
    "instructions": lambda: {
        name: pairs(lambda p, a, name=name: instructions.followed(name, p, a)) for name in instructions.FOLLOWED
    },
    "kvpress": lambda: {"needle_rouge1": pairs(swapped(kvpress.needle_rouge1))},
    "longbench": lambda: {metric: of_longbench(task) for metric, task in sorted(TASKS.items())},
    "longbench_v2": lambda: {
        "score": [score for p in PREDICTIONS for score in longbench_v2.score(p, "B").values()],
    },
    "math_answers": lambda: {
        "integer": [x for p, a in product(PREDICTIONS, NUMBERS) for x in math_answers.integer_score(p, a).values()],
        "last_box": [float(math_answers.last_box(p) == "42") for p in PREDICTIONS],
    },
    "math_numbers": lambda: {
        "number": [float(math_numbers.number(p) or 0) for p in (*PREDICTIONS, *NUMBERS, "N = 33.0", "\\frac{1}{4}")],
        "last_number": [float(math_numbers.last_number(p) or 0) for p in PREDICTIONS],
    },
    "needle": lambda: {
        **{f.__name__: pairs(swapped(f)) for f in (needle.rouge1_f, needle.rouge1_recall)},
        **{
            f.__name__: pairs(swapped(f), NUMBERS)
            for f in (needle.first_number, needle.leading_digits, needle.exact_number)
        },
    },
    "nolima": lambda: {"contains": pairs(listed(nolima.contains))},
    "repoqa": lambda: {"bleu": pairs(repoqa.bleu)},
    "ruler": lambda: {f.__name__: pairs(listed(f)) for f in (ruler.string_match_all, ruler.string_match_part)},
    "scbench": lambda: {kind: of_scbench(kind) for kind in sorted(scbench.METRICS)},
}


def result(name: str) -> dict:
    scores = {case: [round(float(value), 6) for value in values] for case, values in CASES[name]().items()}
    return {"versions": {name: VERSIONS[name]}, "scores": {case: compact(values) for case, values in scores.items()}}


def compact(values: list[float]) -> str:
    """Scores as a short text, equal neighbours as one with their number."""
    runs: list[list] = []
    for value in values:
        if runs and runs[-1][0] == value:
            runs[-1][1] += 1
        else:
            runs.append([value, 1])
    return " ".join(f"{value:g}" if count == 1 else f"{value:g}*{count}" for value, count in runs)


def results() -> dict[str, dict]:
    return {name: result(name) for name in VERSIONS}
