"""How many tokens a context of SCBench may have, so that its questions and answers fit behind it."""

from collections.abc import Sequence

from kvbench.benchmarks.scbench.data import Question
from kvbench.benchmarks.scbench.tasks import Task
from kvbench.errors import UserError
from kvbench.utils.tokenizer import Tokenizer

SHARED_ROOM = 1000  # tokens that the official code leaves for the question about a shared context
TEMPLATE_ROOM = 64  # tokens that the chat template may add to a message, and decoding a cut prompt


def context_room(
    task: Task,
    mode: str,
    questions: Sequence[Question],
    max_length: int,
    turns: int,
    tokenizer: Tokenizer,
) -> int:
    """Tokens for a context with what stands around it: the official number, or less where its questions need more room.

    The official number is for `turns` answers, those of the task's first row. Raises UserError where none are left.
    """
    shared = mode == "shared"
    official = max_length - task.answer_room(turns) - SHARED_ROOM * shared
    lengths = [len(tokenizer(" ".join(one.fields.values()))["input_ids"]) + TEMPLATE_ROOM for one in questions]
    limits = [task.limits[one.kind] for one in questions]
    if shared:
        needed = max(length + limit for length, limit in zip(lengths, limits, strict=True))
    else:
        spoken = limits[:-1]
        if mode == "turns_golden":
            spoken = [len(tokenizer(one.spoken)["input_ids"]) for one in questions[:-1]]
        needed = sum(lengths) + sum(spoken) + max(limits)
    room = min(official, max_length - needed)
    if room < 2:
        raise UserError(
            f"benchmark.max_length={max_length} leaves no room for a context of {task.name!r}: its {len(questions)} "
            f"questions and answers take {max_length - room} tokens"
        )
    return room
