"""SQuAD 2.0 and HotpotQA as RULER reads them: each paragraph once, and the questions with their paragraphs."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvbench.benchmarks.published_data import given_or_fetched
from kvbench.benchmarks.ruler.qa import Question, Questions
from kvbench.errors import UserError
from kvbench.utils.regular_files import read_text


@dataclass(frozen=True)
class Source:
    """A published collection of questions; its name is the option that takes a local copy."""

    name: str
    file: str
    published: dict[str, str]  # URL → SHA-256
    parse: Callable[[Any], Questions]  # of the JSON in the file

    def path(self, local: str | None) -> Path:
        return given_or_fetched(self.name, local, self.file, self.published)

    def read(self, path: Path) -> Questions:
        try:
            questions = self.parse(json.loads(read_text(path)))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            reason = f"{type(error).__name__}: {error}"
            raise UserError(f"{path} is not in the form of {self.file} ({reason})") from error
        if not questions.questions:
            raise UserError(f"{path} has no question with an answer")
        return questions


def squad(data: dict[str, Any]) -> Questions:
    """The answerable questions; paragraphs of a question's article are its near documents."""
    articles = [[paragraph["context"] for paragraph in article["paragraphs"]] for article in data["data"]]
    documents = sorted({text for article in articles for text in article})
    number = {text: i for i, text in enumerate(documents)}
    questions = [
        Question(
            text=question["question"],
            answers=tuple(answer["text"] for answer in question["answers"]),
            documents=(source := number[paragraph["context"]],),
            gold=(source,),
            near=tuple(number[text] for text in texts if number[text] != source),
        )
        for article, texts in zip(data["data"], articles, strict=True)
        for paragraph in article["paragraphs"]
        for question in paragraph["qas"]
        if not question["is_impossible"]
    ]
    return Questions(documents, questions)


def hotpotqa(data: list[Any]) -> Questions:
    """Every question, with the ten paragraphs that come with it."""
    entries = [[(title, f"{title}\n{''.join(sentences)}") for title, sentences in entry["context"]] for entry in data]
    documents = sorted({text for entry in entries for _, text in entry})
    number = {text: i for i, text in enumerate(documents)}
    questions = []
    for entry, paragraphs in zip(data, entries, strict=True):
        facts = {title for title, _ in entry.get("supporting_facts", ())} or {title for title, _ in paragraphs}
        questions.append(
            Question(
                text=entry["question"],
                answers=(entry["answer"],),
                documents=tuple(number[text] for _, text in paragraphs),
                gold=tuple(number[text] for title, text in paragraphs if title in facts),
            )
        )
    return Questions(documents, questions)


# The hashes are from Hugging Face's data set scripts (squad_v2, hotpot_qa) and of the files that RULER downloads.
# HotpotQA's first host is gone; its successor's file has other bytes.
_MIRROR = "https://huggingface.co/datasets/namlh2004/hotpotqa/resolve/7e54db4656209750ff487f6fdf8e39a66dba136b"
SOURCES = {
    "squad": Source(
        "squad",
        "squad-dev-v2.0.json",
        {
            "https://rajpurkar.github.io/SQuAD-explorer/dataset/dev-v2.0.json": (
                "80a5225e94905956a6446d296ca1093975c4d3b3260f1d6c8f68bc2ab77182d8"
            )
        },
        squad,
    ),
    "hotpotqa": Source(
        "hotpotqa",
        "hotpot_dev_distractor_v1.json",
        {
            f"{_MIRROR}/hotpot_dev_distractor_v1.json": (
                "e3da074df24e8369009918aa5cdbdd254dadcde4c63f7569d36afd6f2268caa8"
            ),
            "http://curtis.ml.cmu.edu/datasets/hotpot/hotpot_dev_distractor_v1.json": (
                "4e9ecb5c8d3b719f624d66b60f8d56bf227f03914f5f0753d6fa1b359d7104ea"
            ),
        },
        hotpotqa,
    ),
}
# 369 thousand words, kept by RULER's repository in Git LFS
_ENGLISH_WORDS = {
    "https://media.githubusercontent.com/media/NVIDIA/RULER/c3f5e3b4f87f97e048793bb510a3a6b19a46bf3a/"
    "scripts/data/synthetic/json/english_words.json": (
        "affcd6d45fdf3cc843d585c99c97ad615094e760e6c4756b654bab6c73bc2eca"
    )
}


def english_words_path(local: str | None) -> Path:
    return given_or_fetched("english_words", local, "english_words.json", _ENGLISH_WORDS)
