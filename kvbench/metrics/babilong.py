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
    """1 if the labels in the prediction's first sentence, without those in the question, are the target, else 0.

    A target of several labels, as in qa8, has commas between them. Raises UserError for an unknown task.
    """
    if task not in LABELS:
        raise unknown("BABILong task", task, LABELS)
    wanted = target.lower()
    found = {label for label in LABELS[task] if label in first_sentence(prediction) and label not in question.lower()}
    # qa19's targets have a comma too and are one label, which their length tells from qa8's lists
    parts = wanted.split(",") if "," in wanted and len(wanted) > 3 else [wanted]
    return float(len(found) == len(parts) and found.issuperset(parts))


def first_sentence(prediction: str) -> str:
    """What is scored: lower case, up to the first full stop or tag of a further context or example.

    The official code also cuts at "Question", which lower case never contains.
    """
    text = prediction.lower().split(".")[0]
    return text.split("<context>")[0].split("<example>")[0]
