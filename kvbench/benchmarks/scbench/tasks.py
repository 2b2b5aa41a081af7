"""SCBench's tasks as data (Li et al. 2024, arXiv 2412.10319; microsoft/MInference at fb56c91, scbench/)."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Task:
    """A task; `limits` has the most new tokens for each kind of question.

    random   contexts are drawn at random: they may share most sentences, which fill them, and be independent
    """

    name: str
    group: str
    limits: dict[str, int]
    random: bool = False

    @property
    def mixed(self) -> bool:
        """Whether the task has several kinds of questions; its turns then name their kind."""
        return len(self.limits) > 1

    @property
    def file(self) -> str:
        """The task's name in the data set and in the official code."""
        return f"scbench_{self.name}"

    def answer_room(self, turns: int) -> int:
        """Tokens that the official code leaves for the answers to `turns` turns."""
        return sum(self.limits.values()) * turns // len(self.limits)

    def part(self, kind: str) -> str:
        """The name of a kind's samples in tables: a mixed task has a score for each kind."""
        return f"{self.name} {kind}" if self.mixed else self.name


TASKS = {
    task.name: task
    for task in (
        Task("kv", "string_retrieval", {"kv": 150}, random=True),
        Task("prefix_suffix", "string_retrieval", {"prefix_suffix": 150}, random=True),
        Task("vt", "string_retrieval", {"vt": 30}, random=True),
        Task("repoqa", "semantic_retrieval", {"repoqa": 1024}),
        Task("qa_eng", "semantic_retrieval", {"qa_eng": 40}),
        Task("qa_chn", "semantic_retrieval", {"qa_chn": 40}),
        Task("choice_eng", "semantic_retrieval", {"choice_eng": 40}),
        Task("many_shot", "global_information", {"many_shot": 10}),
        Task("mf", "global_information", {"mf": 5}, random=True),
        Task("summary", "global_information", {"summary": 200}),
        Task("summary_with_needles", "multi_tasking", {"summary": 800, "passkey": 15}),
        Task("repoqa_and_kv", "multi_tasking", {"repoqa": 1024, "kv": 80}),
    )
}
# A task without a shared mode: its shared context contains the first question.
NOT_SHARED = "mf"

GROUPS = {
    group: tuple(task.name for task in TASKS.values() if task.group == group)
    for group in dict.fromkeys(task.group for task in TASKS.values())
}
NAMES = {"all": tuple(TASKS), **GROUPS, **{name: (name,) for name in TASKS}}
