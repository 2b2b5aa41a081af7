"""InfiniteBench's tasks as data (Zhang et al. 2024; github.com/OpenBMB/InfiniteBench, src/eval_utils.py)."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Task:
    """A task's group, the most tokens of an answer, and whether the whole question follows the context."""

    group: str
    max_new_tokens: int
    asked_last: bool = True


# Not asked last: the templates of math_find and code_run name what is looked for before the context, and those of
# longbook_sum_eng and math_calc ask nothing after it.
TASKS = {
    "passkey": Task("retrieval", 6),
    "number_string": Task("retrieval", 12),
    "kv_retrieval": Task("retrieval", 50),
    "longbook_sum_eng": Task("text", 1200, asked_last=False),
    "longbook_choice_eng": Task("text", 40),
    "longbook_qa_eng": Task("text", 40),
    "longbook_qa_chn": Task("text", 40),
    "longdialogue_qa_eng": Task("text", 40),
    "math_find": Task("math", 3, asked_last=False),
    "math_calc": Task("math", 30_000, asked_last=False),
    "code_run": Task("code", 5, asked_last=False),
    "code_debug": Task("code", 5),
}

GROUPS = {
    group: tuple(name for name, task in TASKS.items() if task.group == group)
    for group in dict.fromkeys(task.group for task in TASKS.values())
}

# The names that benchmark.tasks accepts.
SETS = {
    "all": tuple(TASKS),
    "asked_last": tuple(name for name, task in TASKS.items() if task.asked_last),
    **GROUPS,
    **{name: (name,) for name in TASKS},
}
