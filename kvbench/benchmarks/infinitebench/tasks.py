"""InfiniteBench's tasks as data (Zhang et al. 2024; github.com/OpenBMB/InfiniteBench, src/eval_utils.py)."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Task:
    """A task: its group, an answer's most tokens, whether the whole question follows the context, and its contexts.

    raw_tokens   of an answer that completes a raw prompt ("The pass key is"): the official limits of the open models.
    chat_tokens  of an answer to GPT-4's prompts, for which the official code has no limit: at least the tokens of
                 GPT-4's longest published answer (results/gpt4 at 88b3daa) in SmolLM2's vocabulary, one per digit.
    random       contexts are drawn at random: they may share most sentences, which fill them, and be independent.
    """

    group: str
    raw_tokens: int
    chat_tokens: int
    asked_last: bool = True
    random: bool = False

    def max_new_tokens(self, chat: bool) -> int:
        return self.chat_tokens if chat else self.raw_tokens


# Not asked last: the templates of math_find and code_run name what is looked for before the context, and those of
# longbook_sum_eng and math_calc ask nothing after it. Behind each task: the tokens of GPT-4's longest published answer.
# That to code_debug fits behind 127,000 tokens of a prompt into a model that reads 131,072.
TASKS = {
    "passkey": Task("retrieval", 6, 64, random=True),  # 12
    "number_string": Task("retrieval", 12, 64, random=True),  # 21
    "kv_retrieval": Task("retrieval", 50, 128, random=True),  # 89
    "longbook_sum_eng": Task("text", 1200, 2048, asked_last=False),  # 2,028
    "longbook_choice_eng": Task("text", 40, 64),  # 36
    "longbook_qa_eng": Task("text", 40, 128),  # 118
    "longbook_qa_chn": Task("text", 40, 512),  # 438
    "longdialogue_qa_eng": Task("text", 40, 64),  # 24
    "math_find": Task("math", 3, 512, asked_last=False, random=True),  # 372
    "math_calc": Task("math", 30_000, 30_000, asked_last=False, random=True),  # 1,387
    "code_run": Task("code", 5, 2048, asked_last=False, random=True),  # 1,099
    "code_debug": Task("code", 5, 4000),  # 3,143
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
