"""Prompts from rows, as in LongBench's pred.py, and the part at a prompt's end that is the question."""

from collections.abc import Iterator, Mapping, Sequence

from kvbench.benchmarks.truncation import PromptText, question_in
from kvbench.utils.tokenizer import Tokenizer

# Prompts per tokenizer call; a fast tokenizer uses all cores for one call.
TOGETHER = 64


def build(
    template: str, rows: Sequence[Mapping[str, object]], max_length: int, tokenizer: Tokenizer
) -> Iterator[PromptText]:
    """Each row's prompt, of at most about `max_length` tokens, and its question: the part that follows the context.

    As in the official code, tokens are counted before any chat template, including special tokens that the tokenizer
    adds.
    """
    ending = template.partition("{context}")[2]
    for start in range(0, len(rows), TOGETHER):
        texts = [{"context": row["context"], "input": row["input"]} for row in rows[start : start + TOGETHER]]
        prompts = [template.format(**fields) for fields in texts]
        tokens = tokenizer(prompts, truncation=False)["input_ids"]
        for fields, prompt, ids in zip(texts, prompts, tokens, strict=True):
            yield _cut(prompt, ending.format(**fields), ids, max_length, tokenizer)


def _cut(prompt: str, tail: str, ids: list[int], max_length: int, tokenizer: Tokenizer) -> PromptText:
    """The prompt with these ids, without its middle where it is too long, and the question at its end."""
    if len(ids) <= max_length:
        return PromptText(prompt, tail)
    half = max_length // 2
    start, end = (tokenizer.decode(part, skip_special_tokens=True) for part in (ids[:half], ids[-half:]))
    before = prompt[: -len(tail)]
    if start.startswith(before):  # the cut is inside the question: the first half has the whole context
        return PromptText(start + end, (start + end)[len(before) :])
    return PromptText(start + end, question_in(end, tail, tokenizer))
