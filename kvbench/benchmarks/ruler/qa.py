"""RULER's question answering: SQuAD's or HotpotQA's paragraphs among others of the same collection."""

from dataclasses import dataclass
from random import Random

from kvbench.benchmarks.ruler.maker import Draft, Maker


@dataclass(frozen=True)
class Question:
    """A question; its documents are numbers in Questions.documents."""

    text: str
    answers: tuple[str, ...]
    documents: tuple[int, ...]  # the question's documents, in their order
    gold: tuple[int, ...]  # its documents that have the answer
    near: tuple[int, ...] = ()  # distractors that are taken before all other documents


@dataclass(frozen=True)
class Questions:
    documents: list[str]  # sorted, each once
    questions: list[Question]

    def gold(self, index: int) -> str:
        """The documents with the answer to a question, as one text."""
        return "\n\n".join(self.documents[i] for i in self.questions[index].gold)


class AnswerMaker(Maker):
    """Generates samples of the qa tasks; the size of a haystack is its number of documents."""

    increment = probe = 10

    def __init__(self, texts: dict[str, str], questions: Questions, seed: int):
        self.template, self.prefix, self.document = texts["qa"], texts["qa_prefix"], texts["document"]
        self.documents, self.questions = questions.documents, questions.questions
        self.seed, self.random = seed, Random(seed)

    def draft(self, size: int, index: int) -> Draft:
        question = self.questions[index]
        documents = self._documents(question, size)
        Random(self.seed).shuffle(documents)
        numbered = (self.document.format(i=i, document=document) for i, document in enumerate(documents, 1))
        text = self.template.format(context="\n\n".join(numbered), query=question.text)
        return Draft(text, self.prefix, list(question.answers))

    def least(self, index: int) -> int:
        return len(self.questions[index].documents)

    def smallest(self, index: int) -> int:
        return len(self.questions[index].gold)

    def _documents(self, question: Question, size: int) -> list[str]:
        """The question's own documents and distractors, the near ones first."""
        if size >= len(self.documents):
            repeats = -(-size // len(self.documents))
            return (self.documents * repeats)[:size]
        documents, near, distractors = question.documents, question.near, size - len(question.documents)
        if distractors < 0:  # smaller than any official sample: documents with the answer come first
            chosen = [*question.gold, *(i for i in documents if i not in question.gold)][:size]
        elif distractors > len(near):
            pool = [i for i in range(len(self.documents)) if i not in {*documents, *near}]
            chosen = [*documents, *near, *self.random.sample(pool, distractors - len(near))]
        else:
            chosen = [*documents, *self.random.sample(near, distractors)]
        return [self.documents[i] for i in chosen]
