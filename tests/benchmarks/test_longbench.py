"""LongBench's prompts: official templates, official truncation, and what of a prompt is its question."""

import hashlib
import json
import sys
from itertools import chain

import pytest

from kvbench.benchmarks import LongBench, LongBenchE
from kvbench.benchmarks.base import text_unit
from kvbench.benchmarks.longbench import templates
from kvbench.benchmarks.longbench.prompt import build
from kvbench.benchmarks.longbench.tasks import ENGLISH, GROUPS, LONGBENCH_E, SETS, TASKS
from kvbench.errors import UserError
from kvbench.metrics.longbench import FIRST_LINE, METRICS
from tests.support.needs import official
from tests.support.paths import DATA

ROWS = DATA / "longbench"
THERE = sorted(path.stem for path in ROWS.glob("*.jsonl"))
OFFICIAL, needs_official = official("longbench/official")


def benchmark(**changes):
    config = {"tasks": THERE, "max_length": 7500, "data_dir": str(ROWS)}
    return LongBench(**(config | changes))


# --- tasks


def test_the_tasks_are_the_official_21_in_six_groups():
    assert len(TASKS) == 21
    assert set(TASKS) == set(METRICS)
    assert {group: len(members) for group, members in GROUPS.items()} == {
        "single_doc_qa": 4,
        "multi_doc_qa": 4,
        "summarization": 4,
        "few_shot": 4,
        "synthetic": 3,
        "code": 2,
    }
    raw = {name for name, task in TASKS.items() if not task.chat}
    assert raw == {"trec", "triviaqa", "samsum", "lsht", "lcc", "repobench-p"} > FIRST_LINE
    assert [name for name, task in TASKS.items() if task.stop_at_newline] == ["samsum"]
    assert sorted(name for name, task in TASKS.items() if task.language == "zh") == sorted(set(TASKS) - set(ENGLISH))


def test_the_lengths_of_answers_are_those_of_the_paper():
    lengths = {
        512: {"gov_report", "qmsum", "multi_news", "vcsum"},
        128: {"narrativeqa", "qasper", "dureader", "samsum"},
        64: {"multifieldqa_en", "multifieldqa_zh", "trec", "lsht", "lcc", "repobench-p"},
    }
    stated = {name: length for length, names in lengths.items() for name in names}
    assert {name: task.max_new_tokens for name, task in TASKS.items()} == {name: stated.get(name, 32) for name in TASKS}


@needs_official
def test_the_lengths_of_answers_are_the_official_ones():
    official = json.loads((OFFICIAL / "dataset2maxlen.json").read_text())
    assert {name: task.max_new_tokens for name, task in TASKS.items()} == official


def test_the_sets_are_those_of_the_papers():
    sizes = {name: len(members) for name, members in SETS.items()}
    assert sizes == {"english16": 16, "all21": 21, "simlayerkv16": 16, "simlayerkv5": 5, "longbench_e13": 13}
    assert set(SETS["english16"]) ^ set(SETS["simlayerkv16"]) == {"2wikimqa", "dureader"}
    assert set(SETS["simlayerkv5"]) | set(SETS["simlayerkv16"]) == set(TASKS)
    assert set(LONGBENCH_E) < set(ENGLISH)
    assert set(ENGLISH) - set(LONGBENCH_E) == {"narrativeqa", "musique", "qmsum"}


@pytest.mark.parametrize(
    "names, chosen",
    [
        (["qasper"], ["qasper"]),
        (["code"], ["lcc", "repobench-p"]),
        (["lcc", "code", "lcc"], ["lcc", "repobench-p"]),
        (["trec", "2wikimqa"], ["trec", "2wikimqa"]),
        (["all21"], list(TASKS)),
    ],
)
def test_tasks_are_chosen_by_task_group_and_set_each_once(names, chosen):
    assert LongBench.tasks_of(names) == chosen


def test_a_wrong_task_is_told_with_the_nearest():
    with pytest.raises(UserError, match=r"unknown task in benchmark.tasks 'qaspr'. Did you mean 'qasper'"):
        LongBench.tasks_of(["lcc", "qaspr"])
    with pytest.raises(UserError, match="'narrativeqa'"):
        LongBenchE.tasks_of(["narrativeqa"])
    assert LongBenchE.tasks_of(["multi_doc_qa"]) == ["hotpotqa", "2wikimqa"]


# --- templates


def test_every_template_of_the_installed_lm_eval_is_proven_official(monkeypatch):
    monkeypatch.delitem(sys.modules, "lm_eval", raising=False)
    found = templates.load(TASKS)
    assert "lm_eval" not in sys.modules
    for task, template in found.items():
        assert hashlib.sha256(template.encode()).hexdigest() == templates.SHA256[task]
        assert template.count("{context}") == 1
        assert "{input}" not in template.partition("{context}")[0]  # the question comes last


@needs_official
def test_every_prompt_is_the_official_template_formatted(embedded):
    official = json.loads((OFFICIAL / "dataset2prompt.json").read_text(encoding="utf-8"))
    assert templates.load(TASKS) == official
    assert templates.load(TASKS, str(OFFICIAL / "dataset2prompt.json")) == official
    row = {"context": "Some {context} with {braces} and %s.", "input": "A {question}?", "extra": 1}
    for task, template in templates.load(TASKS).items():
        ((prompt, question),) = build(template, [row], 10_000, embedded.tokenizer)
        assert prompt == official[task].format(**row)
        assert prompt == official[task].partition("{context}")[0] + row["context"] + question


def test_another_template_is_refused_with_both_hashes(tmp_path):
    file = tmp_path / "prompts.json"
    prompts = templates.load(TASKS)
    file.write_text(json.dumps(prompts | {"qasper": prompts["qasper"] + " "}))
    assert templates.load(["lcc", "trec"], str(file)) == {task: prompts[task] for task in ("lcc", "trec")}
    changed = hashlib.sha256((prompts["qasper"] + " ").encode()).hexdigest()[:16]
    with pytest.raises(UserError, match=f"'qasper' in .*prompts.json.* begins {changed}, .* 0fbdd123fe7f83d6"):
        templates.load(TASKS, str(file))


def test_white_space_that_lm_eval_lost_is_what_the_mending_mends(monkeypatch):
    """Without the table exactly its tasks fail the check of their hash."""
    monkeypatch.setattr(templates, "LOST", {})
    refused = set()
    for task in TASKS:
        try:
            templates.load([task])
        except UserError:
            refused.add(task)
    assert refused == {"triviaqa", "samsum", "passage_count", "passage_retrieval_en", "lcc", "repobench-p"}


@pytest.mark.parametrize(
    "content, message",
    [
        (None, "cannot be read"),
        ("{", "is not JSON"),
        ("[]", "no prompt for 'lcc'"),
        ('{"lcc": 1}', "no prompt for 'lcc'"),
    ],
)
def test_a_bad_prompts_file_is_named(tmp_path, content, message):
    file = tmp_path / "prompts.json"
    if content is not None:
        file.write_text(content)
    with pytest.raises(UserError, match=rf"benchmark.prompts_file='.*prompts.json'.* {message}"):
        templates.load(["lcc"], str(file))


def test_without_lm_eval_both_ways_to_the_prompts_are_told(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"pip install --no-deps lm-eval==0.4.13, or benchmark.prompts_file=FILE"):
        templates.load(["lcc"])


# --- truncation and question


def stated_rule(prompt: str, max_length: int, tokenizer) -> str:
    """LongBench's rule in other words: over-long prompts are the texts of their two outer halves."""
    encoding = tokenizer(prompt, add_special_tokens=True).input_ids
    if max_length >= len(encoding):
        return prompt
    keep = int(max_length / 2)
    middle = slice(keep, len(encoding) - keep)
    del encoding[middle]
    return "".join(tokenizer.decode(half, skip_special_tokens=True) for half in (encoding[:keep], encoding[keep:]))


@pytest.mark.parametrize("max_length", [64, 301, 700, 20_000])
def test_prompts_are_cut_in_the_middle_as_the_official_code_does(embedded, max_length):
    made = benchmark(max_length=max_length)
    prompts = templates.load(THERE)
    cut = 0
    for task, rows in made.rows.items():
        samples = [sample for sample in made.samples(embedded.tokenizer) if sample.meta["task"] == task]
        for row, sample in zip(rows, samples, strict=True):
            whole = prompts[task].format(**row)
            assert sample.prompt == stated_rule(whole, max_length, embedded.tokenizer)
            cut += sample.prompt != whole
    assert (cut > 0) == (max_length < 20_000)


def test_the_question_is_everything_after_the_context(embedded):
    made = benchmark(max_length=2000)
    for sample in made.samples(embedded.tokenizer):
        tail = made.prompts[sample.meta["task"]].partition("{context}")[2]
        assert sample.question.startswith(tail.partition("{input}")[0])
        assert sample.question.endswith(tail.partition("{input}")[2])
        assert sample.prompt.endswith(sample.question)


def test_rows_about_one_context_are_one_unit_of_intervals(embedded):
    made = benchmark()
    units = [sample.unit for sample in made.samples(embedded.tokenizer)]
    assert units == [text_unit(row["context"]) for task in THERE for row in made.rows[task]]


def test_a_copy_of_a_context_with_other_blanks_is_of_its_unit(embedded):
    made = benchmark(tasks=["qasper"])
    (row,) = made.rows["qasper"]
    made.rows["qasper"].append(row | {"_id": "copy", "context": row["context"].replace(" ", "  ")})
    assert [sample.unit for sample in made.samples(embedded.tokenizer)] == 2 * [text_unit(row["context"])]


class Wordwise:
    """A tokenizer that adds special tokens at both ends and mends what it decodes."""

    def __call__(self, text, truncation=False, add_special_tokens=True):
        if isinstance(text, list):
            return {"input_ids": [self(one, truncation, add_special_tokens)["input_ids"] for one in text]}
        words = text.split(" ")
        return {"input_ids": ["<s>", *words, "</s>"] if add_special_tokens else words}

    def decode(self, ids, skip_special_tokens):
        assert skip_special_tokens
        return " ".join(word for word in ids if word not in ("<s>", "</s>", "<x>"))


WORDS = " ".join(map(str, range(20)))
ASKED = " ".join(map(chr, range(97, 117)))


@pytest.mark.parametrize(
    "context, question, max_length, prompt, asked",
    [
        (WORDS, "who is it", 27, f"Text: {WORDS} Q: who is it", " Q: who is it"),
        (
            WORDS,
            "who is it",
            26,
            "Text: 0 1 2 3 4 5 6 7 8 9 10" + "12 13 14 15 16 17 18 19 Q: who is it",
            " Q: who is it",
        ),
        (WORDS, "who is it", 13, "Text: 0 1 2 3" + "19 Q: who is it", " Q: who is it"),
        (WORDS, "who <x> is", 14, "Text: 0 1 2 3 4" + "18 19 Q: who is", " Q: who is"),
        (WORDS, "who is it", 8, "Text: 0 1" + "who is it", "who is it"),
        ("0 1", ASKED, 14, "Text: 0 1 Q: a b" + "o p q r s t", " Q: a b" + "o p q r s t"),
    ],
    ids=["whole", "one too many", "odd", "special token in the question", "question fills the half", "cut question"],
)
def test_special_tokens_count_and_the_question_is_what_is_left_of_it(context, question, max_length, prompt, asked):
    """<s> and </s> are two of 27 tokens, and of every half one."""
    row = {"context": context, "input": question}
    assert list(build("Text: {context} Q: {input}", [row], max_length, Wordwise())) == [(prompt, asked)]


def test_rows_are_told_apart_though_many_are_tokenised_together(monkeypatch):
    rows = [{"context": " ".join(str(i) * 5 for _ in range(i)), "input": f"question {i}"} for i in range(5)]
    one_by_one = [*chain.from_iterable(build("Text: {context} Q: {input}", [row], 6, Wordwise()) for row in rows)]
    monkeypatch.setattr("kvbench.benchmarks.longbench.prompt.TOGETHER", 2)
    assert list(build("Text: {context} Q: {input}", rows, 6, Wordwise())) == one_by_one


def test_a_tail_that_decoding_changes_beyond_recognition_is_hidden_by_its_length():
    class Upper(Wordwise):
        def decode(self, ids, skip_special_tokens):
            text = super().decode(ids, skip_special_tokens)
            return text.upper() if len(ids) == 7 else text

    row = {"context": WORDS, "input": "who is it"}
    assert list(build("Text: {context} Q: {input}", [row], 14, Upper())) == [
        ("TEXT: 0 1 2 3 418 19 Q: WHO IS IT", " Q: WHO IS IT")
    ]
