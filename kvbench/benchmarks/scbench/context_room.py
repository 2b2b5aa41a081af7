"""The most tokens of a context of SCBench, so that its questions and answers fit after it."""

from collections.abc import Sequence

from kvbench.benchmarks.scbench.data import Question
from kvbench.benchmarks.scbench.tasks import Task
from kvbench.benchmarks.truncation import TEMPLATE_ROOM
from kvbench.errors import UserError
from kvbench.utils.tokenizer import Tokenizer

SHARED_ROOM = 1000  # tokens that the official code leaves for the question about a shared context


def context_room(
    task: Task,
    mode: str,
    questions: Sequence[Question],
    max_length: int,
    turns: int,
    tokenizer: Tokenizer,
) -> int:
    """Tokens for a context and the template around it: the official number, or less where its questions need more room.

    The official number leaves room for `turns` answers, as many as the task's first row has. Raises UserError where no
    room is left.
    """
    shared = mode == "shared"
    official = max_length - task.answer_room(turns) - SHARED_ROOM * shared
    texts = [" ".join(question.fields.values()) for question in questions]
    lengths = [len(tokenizer(text)["input_ids"]) + TEMPLATE_ROOM for text in texts]
    limits = [task.limits[question.kind] for question in questions]
    if shared:
        needed = max(length + limit for length, limit in zip(lengths, limits, strict=True))
    else:
        spoken = limits[:-1]
        if mode == "turns_golden":
            spoken = [len(tokenizer(question.spoken)["input_ids"]) for question in questions[:-1]]
        needed = sum(lengths) + sum(spoken) + max(limits)
    room = min(official, max_length - needed)
    if room < 2:
        raise UserError(
            f"benchmark.max_length={max_length} leaves no room for a context of {task.name!r}: its {len(questions)} "
            f"questions and answers take {max_length - room} tokens"
        )
    return room
