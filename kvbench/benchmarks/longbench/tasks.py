"""LongBench v1's tasks as data (Bai et al. 2024; github.com/THUDM/LongBench, commit 2e00731)."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Task:
    """Prompt and answer of a task; `kvbench.metrics.longbench` has its metric."""

    name: str
    group: str
    max_new_tokens: int
    language: str  # en, zh or code
    chat: bool = True  # inside the model's chat template
    stop_at_newline: bool = False
    samples: int = 200  # Bai et al. 2024, Table 1: 4,750 in all


TASKS = {
    task.name: task
    for task in (
        Task("narrativeqa", "single_doc_qa", 128, "en"),
        Task("qasper", "single_doc_qa", 128, "en"),
        Task("multifieldqa_en", "single_doc_qa", 64, "en", samples=150),
        Task("multifieldqa_zh", "single_doc_qa", 64, "zh"),
        Task("hotpotqa", "multi_doc_qa", 32, "en"),
        Task("2wikimqa", "multi_doc_qa", 32, "en"),
        Task("musique", "multi_doc_qa", 32, "en"),
        Task("dureader", "multi_doc_qa", 128, "zh"),
        Task("gov_report", "summarization", 512, "en"),
        Task("qmsum", "summarization", 512, "en"),
        Task("multi_news", "summarization", 512, "en"),
        Task("vcsum", "summarization", 512, "zh"),
        Task("trec", "few_shot", 64, "en", chat=False),
        Task("triviaqa", "few_shot", 32, "en", chat=False),
        Task("samsum", "few_shot", 128, "en", chat=False, stop_at_newline=True),
        Task("lsht", "few_shot", 64, "zh", chat=False),
        Task("passage_count", "synthetic", 32, "en"),
        Task("passage_retrieval_en", "synthetic", 32, "en"),
        Task("passage_retrieval_zh", "synthetic", 32, "zh"),
        Task("lcc", "code", 64, "code", chat=False, samples=500),
        Task("repobench-p", "code", 64, "code", chat=False, samples=500),
    )
}

GROUPS = {
    group: tuple(task.name for task in TASKS.values() if task.group == group)
    for group in dict.fromkeys(task.group for task in TASKS.values())
}

ENGLISH = tuple(task.name for task in TASKS.values() if task.language != "zh")
# SimLayerKV's main tables have dureader instead of 2wikimqa, and the other five in an appendix.
SIMLAYERKV_REST = ("multifieldqa_zh", "2wikimqa", "vcsum", "lsht", "passage_retrieval_zh")
LONGBENCH_E = tuple(
    "qasper multifieldqa_en hotpotqa 2wikimqa gov_report multi_news trec triviaqa samsum passage_count "
    "passage_retrieval_en lcc repobench-p".split()
)

SETS = {
    "english16": ENGLISH,
    "all21": tuple(TASKS),
    "simlayerkv16": tuple(name for name in TASKS if name not in SIMLAYERKV_REST),
    "simlayerkv5": SIMLAYERKV_REST,
    "longbench_e13": LONGBENCH_E,
}

# A table has an average of these only when it has all of its tasks.
AVERAGES = {
    "average 16 English": SETS["english16"],
    "average 16 SimLayerKV": SETS["simlayerkv16"],
    "average 21": SETS["all21"],
}


# The papers' abbreviations
HEADERS = dict(
    pair.split("=")
    for pair in """
    narrativeqa=NrtvQA qasper=Qasper multifieldqa_en=MF-en multifieldqa_zh=MF-zh hotpotqa=HotpotQA 2wikimqa=2WikiMQA
    musique=Musique dureader=DuReader gov_report=GovReport qmsum=QMSum multi_news=MultiNews vcsum=VCSUM trec=TREC
    triviaqa=TriviaQA samsum=SAMSum lsht=LSHT passage_count=PCount passage_retrieval_en=PRe passage_retrieval_zh=PRz
    lcc=LCC repobench-p=RB-P
    """.split()
)


def task_sets(offered: Sequence[str] = tuple(TASKS)) -> dict[str, tuple[str, ...]]:
    """The names of sets, groups and tasks, each with its tasks: those that are in `offered`, and whole sets alone."""
    allowed = {name: members for name, members in SETS.items() if set(members) <= set(offered)}
    for group, members in GROUPS.items():
        allowed[group] = tuple(name for name in members if name in offered)
    return allowed | {name: (name,) for name in offered}
