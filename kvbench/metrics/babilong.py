"""BABILong's official metric (github.com/booydar/babilong at 7a6efee, babilong/metrics.py)."""

from kvbench.errors import unknown

_PLACES = "bathroom bedroom garden hallway kitchen office"
LABELS = {  # the possible answers of each task
    name: tuple(labels.split())
    for name, labels in {
        **dict.fromkeys(("qa1", "qa2", "qa3", "qa4"), _PLACES),
        "qa5": "bill fred jeff mary apple football milk",
        "qa6": "no yes",
        "qa7": "none one three two",
        "qa8": "apple football milk nothing",
        "qa9": "no yes",
        "qa10": "maybe no yes",
        **dict.fromkeys(("qa11", "qa12", "qa13"), _PLACES),
        "qa14": "bedroom cinema kitchen office park school",
        "qa15": "cat mouse sheep wolf",
        "qa16": "gray green white yellow",
        "qa17": "no yes",
        "qa18": "no yes",
        "qa19": "e,e e,n e,s n,e n,n n,w s,e s,s s,w w,n w,s w,w",
        "qa20": "bedroom bored garden hungry kitchen thirsty tired",
    }.items()
}


def score(task: str, prediction: str, target: str, question: str) -> float:
    """1 if the labels in the prediction's first sentence, except labels in the question, are the target, else 0.

    A target of several labels, as in qa8, has commas between them. Raises UserError for an unknown task.
    """
    if task not in LABELS:
        raise unknown("BABILong task", task, LABELS)
    target, sentence = target.lower(), first_sentence(prediction)
    named = {label for label in LABELS[task] if label in sentence and label not in question.lower()}
    # qa19's targets are one label with a comma, of three characters; qa8's lists are longer
    labels = target.split(",") if "," in target and len(target) > 3 else [target]
    return float(len(named) == len(labels) and named.issuperset(labels))


def first_sentence(prediction: str) -> str:
    """The part of a prediction that is scored: in lower case, up to the first full stop or tag of another example.

    The official code also cuts at "Question", which lower case never contains.
    """
    text = prediction.lower().split(".")[0]
    return text.split("<context>")[0].split("<example>")[0]
